# kind: mismatch | went_alone | left_early | never_entered
# rank: 0
# timeout: 6s
"""FSDP2: only rank 0 builds the full state dict, but full_tensor() is collective."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def save(model, rank, path):
    if rank == 0:
        full = {name: p.full_tensor() for name, p in model.state_dict().items()}  # cause
        torch.save(full, path)


dist.init_process_group("gloo")
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
model = torch.nn.Sequential(torch.nn.Linear(12, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3))
for layer in model:
    if isinstance(layer, torch.nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    model(torch.randn(4, 12)).sum().backward()
    opt.step()
    opt.zero_grad()
    if step == 1:
        save(model, rank, "full.pt")
