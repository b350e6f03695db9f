"""Each rank updates the parameters that it owns."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
parameters = list(model.parameters())
owners = [number % world_size for number in range(len(parameters))]
own = [one for one, owner in zip(parameters, owners, strict=False) if owner == rank]
optimizer = torch.optim.Adam(own, lr=0.01) if own else None
generator = torch.Generator().manual_seed(1)
for _ in range(5):
    inputs, targets = torch.randn(12, 8, generator=generator), torch.randn(12, 4, generator=generator)
    inputs, targets = inputs.chunk(world_size)[rank], targets.chunk(world_size)[rank]
    for parameter in parameters:
        parameter.grad = None
    nn.functional.mse_loss(model(inputs), targets).backward()
    for parameter, owner in zip(parameters, owners, strict=False):
        dist.reduce(parameter.grad, owner)
        parameter.grad /= world_size
    if optimizer is not None:
        optimizer.step()
    for parameter, owner in zip(parameters, owners, strict=False):
        dist.broadcast(parameter.data, owner)

dist.destroy_process_group()
