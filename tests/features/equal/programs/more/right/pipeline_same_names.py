"""Pipeline same names."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
layers = [nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU()]
stage = nn.Sequential(*layers[rank * 4 // world_size : (rank + 1) * 4 // world_size])
first, last = rank == 0, rank == world_size - 1
optimizer = torch.optim.Adam(stage.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(1)
for _ in range(5):
    x, y = torch.randn(12, 8, generator=generator), torch.randn(12, 8, generator=generator)
    optimizer.zero_grad()
    if not first:
        x = torch.empty(12, 8)
        dist.recv(x, rank - 1)
        x.requires_grad_()
    output = stage(x)
    if last:
        nn.functional.mse_loss(output, y).backward()
    else:
        dist.send(output.detach(), rank + 1)
        gradient = torch.empty_like(output)
        dist.recv(gradient, rank + 1)
        output.backward(gradient)
    if not first:
        dist.send(x.grad, rank - 1)
    optimizer.step()
dist.destroy_process_group()
