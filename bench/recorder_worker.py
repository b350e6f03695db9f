"""What `bench/recorder.py` runs on every rank: the same work with and without the recorder, in turn.

    recorder_worker.py RECORDER armed|plain PAIRS WORK...

Each rank forks twice, into one process that is recorded and one that is not, each with process groups of its own; they
take turns, so that other work of the machine slows both alike. (To switch the recorder on and off within one process
would measure something else: whenever a class of torch is patched, the interpreter forgets what it had learned about
that class.)
"""

import itertools
import operator
import os
import statistics
import sys
import time
import traceback
from contextlib import suppress
from multiprocessing import Pipe

import torch
import torch.distributed as dist
from labnode.features.faults.on_node.holds import holds
from labnode.node.recorder import install, phases
from labnode.node.trace_file import TraceFile
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from lab import note

SAMPLES = 100
RANK, WORLD_SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def batches(size):
    """The batches of this rank, epoch after epoch, as a training loop gets them."""
    data = TensorDataset(torch.randn(SAMPLES, 10), torch.randn(SAMPLES, 5))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=size, sampler=sampler)
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        yield from loader


def ddp_step(widths, batch, **options):
    """A step of a training loop with layers of these widths: 100 samples, DistributedSampler, SGD."""

    def make():
        torch.manual_seed(1)
        layers = [layer for pair in itertools.pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())][:-1]
        model = DistributedDataParallel(nn.Sequential(*layers), **options)
        loss_of, optimizer = nn.MSELoss(), torch.optim.SGD(model.parameters(), lr=0.001)
        fetched = batches(batch)

        def step():
            inputs, targets = next(fetched)
            optimizer.zero_grad()
            loss = loss_of(model(inputs), targets)
            loss.backward()
            optimizer.step()

        return step

    return make


def all_reduce(bytes_):
    def make():
        tensor = torch.zeros(bytes_ // 4)
        return lambda: dist.all_reduce(tensor)

    return make


WORK = {
    "DDP step of 10-1000-1000-5": (ddp_step((10, 1000, 1000, 5), 2, bucket_cap_mb=1), 20),
    "DDP step of 10-10-5": (ddp_step((10, 10, 5), 10), 100),
    "all_reduce 4 KB": (all_reduce(4096), 200),
    "all_reduce 4 MB": (all_reduce(4 << 20), 5),
}


class Side:
    """A process that does the work, a block at a time, when it is told to."""

    def __init__(self, port, recorder, *, armed=False):
        self.pipe, pipe = Pipe()
        if not os.fork():
            try:
                with suppress(EOFError):  # when the work is done
                    serve(pipe, port, recorder, armed)
            finally:
                if sys.exc_info()[1] is not None:
                    traceback.print_exc()
                os._exit(0)
        pipe.close()

    def ask(self, name):
        self.pipe.send(name)
        return self.pipe.recv()


def serve(pipe, port, recorder, armed):
    if armed:
        points = [{"op": "all_reduce"}, {"op": "all_reduce", "edge": "after"}, {"phase": "backward"}, {"phase": "step"}]
        never = [{"trigger": index, "count": 1 << 30, **point} for index, point in enumerate(points)]
        holds.arm(never, os.pipe()[0], RANK, lambda *_: None)
        phases.watch_phases(("backward", "step"), holds.begin_phase, holds.end_phase)
    if recorder:
        os.environ["LAB_RECORDER"] = recorder
        trace = TraceFile()
        install.start_recording(RANK, trace.fd, os.getcwd(), None)
    dist.init_process_group("gloo", f"tcp://{os.environ['MASTER_ADDR']}:{port}", rank=RANK, world_size=WORLD_SIZE)
    if recorder:
        start_line = os.pread(trace.fd, 4096, 0).split(b"\n")[0].decode()
        assert f'"recorder":"{recorder}"' in start_line, start_line
    made = {}
    while True:
        name = pipe.recv()
        make, iterations = WORK[name]
        action = made.get(name) or made.setdefault(name, make())
        pipe.send(block(action, iterations))


def block(action, iterations):
    """Seconds of one iteration, and seconds of processor time; the other side has used the caches before."""
    for _ in range(1 + iterations // 5):
        action()
    dist.barrier()
    began, used = time.perf_counter(), time.process_time()
    for _ in range(iterations):
        action()
    return (time.perf_counter() - began) / iterations, (time.process_time() - used) / iterations


def main():
    recorder, armed, pairs, wanted = sys.argv[1], sys.argv[2] == "armed", int(sys.argv[3]), sys.argv[4:]
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)  # each side has a store of its own
    port = int(os.environ["MASTER_PORT"])
    sides = Side(port + 1, None), Side(port + 2, recorder, armed=armed)
    for name in wanted:
        found = []
        for pair in range(-3, pairs):
            took = {side: side.ask(name) for side in (sides if pair % 2 else reversed(sides))}
            if pair >= 0:  # the first ones warm up
                found.append([took[side] for side in sides])
        (plain, plain_cpu), (recorded, recorded_cpu) = (zip(*side, strict=True) for side in zip(*found, strict=True))
        note(name, {
            "plain_s": statistics.median(plain),
            "recorded_s": statistics.median(recorded),
            "ratio": statistics.median(map(operator.truediv, recorded, plain)),
            "extra_s": statistics.median(map(operator.sub, recorded, plain)),
            "extra_cpu_s": statistics.median(map(operator.sub, recorded_cpu, plain_cpu)),
        })  # fmt: skip


if __name__ == "__main__":
    main()
