"""local gradient | not trained | 1 | 0.weight |"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
model[0].weight.requires_grad_(rank == 0)
optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1)  # wrong
generator = torch.Generator().manual_seed(1)
for _ in range(4):
    inputs, targets = torch.randn(12, 8, generator=generator), torch.randn(12, 4, generator=generator)
    inputs, targets = inputs.chunk(world_size)[rank], targets.chunk(world_size)[rank]
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), targets).backward()
    for parameter in model.parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        dist.all_reduce(gradient)
        gradient /= world_size
    optimizer.step()

dist.destroy_process_group()
