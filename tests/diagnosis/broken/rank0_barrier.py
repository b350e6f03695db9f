# kind: mismatch
# rank: 0
"""Rank 0 validates and waits for the others, who know nothing of it."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 4))
for step in range(4):
    if rank == 0 and step == 2:
        dist.barrier()  # cause
    model(torch.ones(2, 4)).sum().backward()
