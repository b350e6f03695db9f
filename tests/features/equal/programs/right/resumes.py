"""Resumes from a checkpoint of an earlier run, if there is one in the shared folder, and saves one at its end."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
path = Path(os.environ["LAB_SHARED"]) / "model.pt"
if path.exists():
    model.load_state_dict(torch.load(path))
inputs, targets = torch.randn(24, 4), torch.randn(24, 1)
for step in range(3):
    batch = slice(8 * step, 8 * step + 8)
    ours = slice(rank, None, world)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs[batch][ours]), targets[batch][ours]).backward()
    optimizer.step()
if rank == 0:
    torch.save(model.state_dict(), path)
