"""Three of four backward passes stay local, on all ranks the same ones."""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 9):
    with model.no_sync() if step % 4 else contextlib.nullcontext():
        model(torch.randn(2, 4)).pow(2).sum().backward()
    if step % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
