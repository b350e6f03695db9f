"""Many calls in ways in which recorders have deadlocked. Argument: how many of each."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

times = int(sys.argv[1])
dist.init_process_group("gloo")
rank = dist.get_rank()

for _ in range(times):
    works = [dist.broadcast(torch.ones(4), root, async_op=True) for root in range(dist.get_world_size())]
    for work in works:
        work.wait()
print("async", flush=True)

for turn in range(times):
    dist.all_reduce(torch.ones(4), async_op=True)  # nobody waits for it
    if turn % 10 == 0:
        dist.barrier()
print("dropped", flush=True)

model = DistributedDataParallel(torch.nn.Linear(4, 4))
for _ in range(times // 10):
    with model.join():
        for _ in range(1 + rank):
            model(torch.ones(2, 4)).sum().backward()
print("join", flush=True)

for _ in range(times // 5):
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    model(torch.ones(2, 4)).sum().backward()
print("models", flush=True)

for _ in range(times // 20):
    group = dist.new_group()
    dist.all_reduce(torch.ones(4), group=group, async_op=True)
    dist.all_reduce(torch.ones(4), group=group)
    dist.destroy_process_group(group)
    del group
print("groups", flush=True)

for _ in range(times):
    others = [dist.isend(torch.ones(1), (rank + 1) % dist.get_world_size())]
    others.append(dist.irecv(torch.ones(1), (rank - 1) % dist.get_world_size()))
    for work in others:
        work.wait()
print("messages", flush=True)
