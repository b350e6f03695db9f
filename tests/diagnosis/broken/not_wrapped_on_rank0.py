# kind: mismatch | shape | dtype
# rank: 0
"""Somebody debugged on rank 0 and left its model unwrapped."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.Linear(4, 2)
if rank != 0:
    model = DistributedDataParallel(model)
for _ in range(3):
    loss = model(torch.ones(2, 4)).pow(2).mean()
    loss.backward()
    dist.all_reduce(loss.detach())  # cause
