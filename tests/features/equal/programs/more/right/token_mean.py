"""Token mean."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(1)
for _ in range(4):
    tokens = torch.randint(0, 20, (12, 6), generator=generator)
    mask = torch.rand(12, 6, generator=generator) < 0.6
    count = mask.sum()
    tokens, mask = tokens.chunk(world_size)[rank], mask.chunk(world_size)[rank]
    optimizer.zero_grad()
    losses = nn.functional.cross_entropy(model(tokens).transpose(1, 2), tokens, reduction="none")
    (losses * mask).sum().div(count).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()

dist.destroy_process_group()
