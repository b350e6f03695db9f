# kind: mismatch | never_entered | slipped
# rank: 0
"""Rank 0 validates with the wrapped model, whose forward pass sends buffers, and forgets no_grad."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
model = DistributedDataParallel(net)
for step in range(4):
    model(torch.ones(4, 4)).sum().backward()
    if rank == 0 and step == 1:
        model(torch.ones(4, 4))  # cause
dist.barrier()
