"""A few steps of distributed data parallel training; every rank has data of its own, all end with the same model."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lab import note

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())  # different data, and at first different parameters, on each rank
model = DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for _ in range(4):
    inputs, targets = torch.randn(8, 4), torch.randn(8, 2)
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

note("parameters", torch.cat([parameter.flatten() for parameter in model.parameters()]))
note("losses", losses)
dist.barrier()
dist.destroy_process_group()
