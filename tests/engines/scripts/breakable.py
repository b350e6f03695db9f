"""Calls, notes and steps of DDP in a fixed order: points at which a fault may hit a rank."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lab import note

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
for step in range(4):
    tensor = torch.ones(2, 3).t()  # not contiguous
    note("step", step)
    dist.all_reduce(tensor)
    note(f"sum {step}", tensor)
left = [torch.zeros(1), torch.zeros(1)]
works = [dist.isend(torch.ones(1), (rank + 1) % size), dist.irecv(left[0], (rank - 1) % size)]
for work in works:
    work.wait()
note("received", left[0].item())
model = DistributedDataParallel(torch.nn.Linear(2, 1))  # one bucket: each backward calls all_reduce once
for _ in range(3):
    model(torch.ones(1, 2)).sum().backward()
dist.barrier()
dist.destroy_process_group()
