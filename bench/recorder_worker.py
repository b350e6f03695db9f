"""What `bench/recorder.py` runs on every rank: the same work with and without the recorder, in turn, in one process.

    recorder_worker.py RECORDER PAIRS WORK...

A process group made before the recorder is started is not recorded, one made after it is. What the recorder puts in the
place of functions of torch, to mark the phases of a step, is put in and taken out again around every block.
"""

import itertools
import operator
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from labnode.recorder import install
from labnode.recorder.journal import journal
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from lab import note

SAMPLES, BATCH = 100, 10


class Patches:
    """What starting the recorder changes in torch, to be undone and done again."""

    def __init__(self):
        loss = nn.modules.loss._Loss  # noqa: SLF001
        self.owners = (DistributedDataParallel, nn.Module, loss, torch.optim.Optimizer, torch.autograd)
        self.hooks = (optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks)  # noqa: SLF001
        self.before = [dict(vars(owner)) for owner in self.owners]

    def recorder_started(self):
        self.changed = []
        for owner, before in zip(self.owners, self.before, strict=True):
            for name, value in list(vars(owner).items()):
                if value is not before.get(name) and hasattr(value, "__wrapped__"):
                    self.changed.append((owner, name, before.get(name), value))
        self.kept = [dict(hooks) for hooks in self.hooks]

    def put(self, recording):
        for owner, name, before, after in self.changed:
            wanted = after if recording else before
            if wanted is not None:
                setattr(owner, name, wanted)
            elif name in vars(owner):
                delattr(owner, name)
        for hooks, kept in zip(self.hooks, self.kept, strict=True):
            hooks.clear()
            if recording:
                hooks.update(kept)
        journal.on = recording


def batches(group):
    """The batches of this rank, epoch after epoch, as a training loop gets them."""
    data = TensorDataset(torch.randn(SAMPLES, 10), torch.randn(SAMPLES, 5))
    sampler = DistributedSampler(data, num_replicas=dist.get_world_size(group), rank=dist.get_rank(group))
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler)
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        yield from loader


def ddp_step(group):
    """A step of the toy loop: Linear 10-10-5, 100 samples, DistributedSampler, SGD."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5))
    model = DistributedDataParallel(model, process_group=group)
    loss_of, optimizer = nn.MSELoss(), torch.optim.SGD(model.parameters(), lr=0.01)
    fetched = batches(group)

    def step():
        inputs, targets = next(fetched)
        optimizer.zero_grad()
        loss = loss_of(model(inputs), targets)
        loss.backward()
        optimizer.step()

    return step


def all_reduce(bytes_):
    def of(group):
        tensor = torch.zeros(bytes_ // 4)
        return lambda: dist.all_reduce(tensor, group=group)

    return of


WORK = {
    "DDP step": (ddp_step, 100),
    "all_reduce 4 KB": (all_reduce(4096), 40),
    "all_reduce 4 MB": (all_reduce(4 << 20), 4),
}


def block(action, iterations):
    """Seconds of one iteration, and seconds of processor time.

    What the switch cost is not measured: the interpreter throws away what it had learned of classes that are patched.
    """
    for _ in range(iterations):
        action()
    dist.barrier()
    began, used = time.perf_counter(), time.process_time()
    for _ in range(iterations):
        action()
    return (time.perf_counter() - began) / iterations, (time.process_time() - used) / iterations


def main():
    os.environ["LAB_RECORDER"], pairs, wanted = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    dist.init_process_group("gloo")  # in front of the recorder: barriers are not recorded either
    patches = Patches()
    plain = dist.new_group()
    plain_work = {name: make(plain) for name, (make, _) in WORK.items() if name in wanted}
    file = tempfile.TemporaryFile(buffering=0)
    os.set_blocking(file.fileno(), True)
    trace = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDWR | os.O_APPEND)
    install.start(dist.get_rank(), trace, os.getcwd(), None)
    patches.recorder_started()
    recorded = dist.new_group()
    recorded_work = {name: make(recorded) for name, (make, _) in WORK.items() if name in wanted}
    start_line = os.pread(file.fileno(), 4096, 0).split(b"\n")[0].decode()
    assert f'"recorder":"{sys.argv[1]}"' in start_line, start_line

    for name in wanted:
        iterations = WORK[name][1]
        sides = {False: plain_work[name], True: recorded_work[name]}
        seconds, used = {False: [], True: []}, {False: [], True: []}
        for pair in range(pairs + 1):
            for recording in (False, True) if pair % 2 else (True, False):
                patches.put(recording)
                took, cpu = block(sides[recording], iterations)
                if pair:  # the first warms up
                    seconds[recording].append(took)
                    used[recording].append(cpu)
        ratios = list(map(operator.truediv, seconds[True], seconds[False]))
        note(name, {
            "plain_s": statistics.median(seconds[False]),
            "recorded_s": statistics.median(seconds[True]),
            "ratio": statistics.median(ratios),
            "ratio_low": statistics.quantiles(ratios, n=4)[0],
            "ratio_high": statistics.quantiles(ratios, n=4)[2],
            "extra_cpu_s": statistics.median(used[True]) - statistics.median(used[False]),
            "extra_s": statistics.median(map(operator.sub, seconds[True], seconds[False])),
        })  # fmt: skip
    note("trace_bytes", os.fstat(file.fileno()).st_size)
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
