"""Hybrid."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
mesh = init_device_mesh("cpu", (1, world_size), mesh_dim_names=("dp", "tp"))
model = parallelize_module(
    nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)),
    mesh["tp"],
    {"0": ColwiseParallel(), "2": RowwiseParallel()},
)
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(1)
for _ in range(5):
    inputs, targets = torch.randn(12, 8, generator=generator), torch.randn(12, 4, generator=generator)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()

dist.destroy_process_group()
