"""A bit of everything that a snapshot has to tell: messages, groups, handles, objects, DDP, and what no run fixes."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WIDTH = int(sys.argv[1]) if len(sys.argv) > 1 else 16

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
first_two = dist.new_group([0, 1])
torch.manual_seed(0)

model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, WIDTH), torch.nn.Linear(WIDTH, 1)))
for _ in range(3):
    model(torch.ones(4, 8)).sum().backward()
    sent = dist.isend(torch.ones(2, 3), (rank + 1) % world_size)
    dist.recv(torch.zeros(2, 3), (rank - 1) % world_size)
    sent.wait()
    if rank < 2:
        dist.broadcast(torch.ones(5), src=1, group=first_two)
if rank == 0:
    for _ in range(world_size - 1):
        dist.recv(torch.zeros(1))  # from whoever comes first
else:
    dist.send(torch.ones(1), 0)
dist.all_gather_object([None] * world_size, {"when": str(time.time()), "who": "x" * (os.getpid() % 7)})
handle = dist.all_reduce(torch.ones(4, dtype=torch.float64), op=dist.ReduceOp.MAX, async_op=True)
handle.wait()
if len(sys.argv) > 2 and rank == 2:
    dist.all_reduce(torch.ones(1))  # the others have a barrier here
dist.barrier()
dist.destroy_process_group()
