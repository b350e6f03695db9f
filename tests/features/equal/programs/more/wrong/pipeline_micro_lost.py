"""local gradient | local gradient | 1 | 0.weight | 0.500"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
layers = [nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)]
cut = {1: [0, 5], 2: [0, 3, 5]}[world_size]
stage = nn.Sequential(*layers[cut[rank] : cut[rank + 1]])
first, last = rank == 0, rank == world_size - 1
optimizer = torch.optim.Adam(stage.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(1)
for _ in range(5):
    inputs, targets = torch.randn(12, 8, generator=generator), torch.randn(12, 4, generator=generator)
    optimizer.zero_grad()
    for x, y in zip(inputs.chunk(3), targets.chunk(3), strict=False):
        if not first:
            x = torch.empty(4, 16)
            dist.recv(x, rank - 1)
            x.requires_grad_()
        output = stage(x)
        if last:
            (nn.functional.mse_loss(output, y) / 3).backward()
        else:
            dist.send(output.detach(), rank + 1)
            gradient = torch.empty_like(output)
            dist.recv(gradient, rank + 1)
            output.backward(gradient / world_size)  # wrong
        if not first:
            dist.send(x.grad, rank - 1)
    optimizer.step()

dist.destroy_process_group()
