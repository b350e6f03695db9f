"""Ways of a script that is recorded. Argument: the way."""

import os
import signal
import subprocess
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lab import note


def dies_in_a_collective(rank):
    dist.all_reduce(torch.ones(2))
    if rank == 1:
        dist.all_reduce(torch.full((3,), 7.0), async_op=True)
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def meets_in_barriers(rank):
    for turn in range(30):
        if turn % dist.get_world_size() == rank:
            torch.ones(300, 300) @ torch.ones(300, 300)  # somebody always comes late
        dist.barrier()


def forks(rank):
    dist.all_reduce(torch.ones(1))
    if os.fork() == 0:
        torch.ones(1, requires_grad=True).sum().backward()
        os._exit(0)
    assert os.wait()[1] == 0
    listing = "import os; print([os.path.realpath(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd')])"
    print("INHERITED", subprocess.check_output([sys.executable, "-c", listing], close_fds=False).decode(), flush=True)
    dist.all_reduce(torch.ones(1))


class Fails(torch.nn.Linear):
    def forward(self, *_):
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error


def fails_in_forward(rank):
    DistributedDataParallel(Fails(2, 2))(torch.ones(2))


def fails_in_a_loss(rank):
    dist.barrier()  # or who is still connecting would fail there
    torch.nn.MSELoss()(torch.ones(2), "not a tensor")


def fails_in_a_collective(rank):
    dist.barrier()
    dist.all_reduce(torch.ones(2), op=dist.ReduceOp.BAND)


def says_what_it_sees(rank):
    group = dist.new_group([0, 1])
    world = dist.group.WORLD
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
    seen = {
        "backend": dist.get_backend(),
        "backend of a group": dist.get_backend(group),
        "name": world.name(),
        "backend name": world._get_backend_name(),
        "types": [str(type(world)), str(type(world._get_backend(torch.device("cpu"))))],
        "repr": repr(world).partition(" at ")[0],
        "instances": [isinstance(world, kind) for kind in (dist.ProcessGroup, dist.distributed_c10d.ProcessGroup)],
        "description": [world.group_name, world.group_desc, group.group_name, world.rank(), world.size()],
        "ranks": dist.get_process_group_ranks(group),
        "sequence": world._get_sequence_number_for_group(),
        "functions": [dist.init_process_group.__name__, DistributedDataParallel.forward.__doc__],
    }
    dist.barrier()
    note("seen", seen)


def trains(rank):
    """DDP in C++ issues most of these; the profiler counts them without the recorder's help."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        model = DistributedDataParallel(
            torch.nn.Sequential(torch.nn.Linear(50, 100), torch.nn.BatchNorm1d(100), torch.nn.Linear(100, 3000)),
            bucket_cap_mb=0.01,  # of all but the first bucket, which holds a megabyte
        )
        optimizer, loss = torch.optim.SGD(model.parameters(), lr=0.01), torch.nn.MSELoss()
        for _ in range(4):
            optimizer.zero_grad()
            loss(model(torch.ones(8, 50)), torch.zeros(8, 3000)).backward()
            optimizer.step()
    counts = {}
    for event in profiler.events():
        if event.name.startswith("c10d::"):
            counts[event.name] = counts.get(event.name, 0) + 1
    note("counts", counts)
    note("elements", [parameter.numel() for parameter in model.parameters()])


dist.init_process_group("gloo")
globals()[sys.argv[1]](dist.get_rank())
dist.destroy_process_group()
