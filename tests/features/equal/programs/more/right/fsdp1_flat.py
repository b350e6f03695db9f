"""Fsdp1 flat."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = FullyShardedDataParallel(
    nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), device_id=torch.device("cpu")
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(1)
for _ in range(6):
    inputs, targets = torch.randn(12, 8, generator=generator), torch.randn(12, 4, generator=generator)
    inputs, targets = inputs.chunk(world_size)[rank], targets.chunk(world_size)[rank]
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()

dist.destroy_process_group()
