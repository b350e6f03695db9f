"""Conv bn eval."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4))
model = DistributedDataParallel(model)
model.eval()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(1)
for _ in range(4):
    inputs, targets = torch.randn(12, 1, 8, 8, generator=generator), torch.randn(12, 4, generator=generator)
    inputs, targets = inputs.chunk(world_size)[rank], targets.chunk(world_size)[rank]
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()

dist.destroy_process_group()
