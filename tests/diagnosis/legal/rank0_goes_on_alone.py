"""After the common training rank 0 tunes the bare module further, by itself."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).pow(2).mean().backward()
    optimizer.step()
if rank == 0:
    for _ in range(4):
        optimizer.zero_grad()
        model.module(torch.randn(2, 4)).pow(2).mean().backward()
        optimizer.step()
dist.barrier()
