"""reduced gradient | averaged again | 1 | 0.weight | 0.500"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


def average(module):
    flat = torch.cat([one.grad.flatten() for one in module.parameters()])
    dist.all_reduce(flat, op=dist.ReduceOp.SUM)
    flat.div_(world_size * world_size)  # wrong
    for one, part in zip(module.parameters(), flat.split([p.numel() for p in module.parameters()]), strict=False):
        one.grad.copy_(part.view_as(one))


model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(1)
for _ in range(5):
    inputs, targets = torch.randn(12, 8, generator=generator), torch.randn(12, 4, generator=generator)
    inputs, targets = inputs.chunk(world_size)[rank], targets.chunk(world_size)[rank]
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), targets).backward()
    average(model)
    optimizer.step()

dist.destroy_process_group()
