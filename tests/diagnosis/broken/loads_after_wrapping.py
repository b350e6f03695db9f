# kind: diverged
# rank: 0
"""Rank 0 loads its checkpoint when the model is wrapped already: the others keep their random weights."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 2))  # cause
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
if rank == 0:
    model.module.load_state_dict({"weight": torch.ones(2, 4), "bias": torch.ones(2)})  # cause
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).pow(2).mean().backward()
    optimizer.step()
