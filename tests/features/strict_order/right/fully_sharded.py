"""FSDP2, whose collectives overlap."""
# nodes: 2

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(3)])
for layer in model:
    fully_shard(layer)
fully_shard(model)
torch.manual_seed(dist.get_rank())
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randn(4, 16)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
