"""Rank 0 validates with the bare module and writes files, the others wait in a barrier."""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
model = DistributedDataParallel(net)
for step in range(4):
    model(torch.randn(4, 4)).pow(2).sum().backward()
    if step == 1:
        if rank == 0:
            with torch.no_grad():
                model.module(torch.ones(4, 4))
            time.sleep(0.3)
        dist.barrier()
