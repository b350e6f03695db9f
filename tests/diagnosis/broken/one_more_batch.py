# kind: went_alone | counts
# rank: 2
"""The data do not divide evenly: one rank has one batch more."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 4))
for _ in range(5 if rank == 2 else 4):
    model(torch.ones(2, 4)).sum().backward()  # cause
