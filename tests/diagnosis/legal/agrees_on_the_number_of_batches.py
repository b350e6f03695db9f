"""Ranks have different numbers of batches, and agree on the least of them."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(4, 2))
batches = torch.tensor([4 + rank])
dist.all_reduce(batches, op=dist.ReduceOp.MIN)
for _ in range(int(batches)):
    model(torch.randn(2, 4)).pow(2).mean().backward()
for _ in range(rank):
    with torch.no_grad():
        model.module(torch.randn(2, 4))
