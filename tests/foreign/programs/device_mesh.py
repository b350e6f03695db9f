"""Hybrid sharding on a device mesh of two dimensions, with activation checkpoints and clipped gradients."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(checkpoint(lambda y: self.up(y).relu(), x, use_reentrant=False))


def main():
    world_size = int(os.environ["WORLD_SIZE"])
    mesh = init_device_mesh("cpu", (1, world_size), mesh_dim_names=("replicate", "shard"))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(Block(6), Block(6), nn.Linear(6, 1))
    for block in model:
        fully_shard(block, mesh=mesh, mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float32))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for step in range(2):
        loss = model(torch.randn(4, 6)).square().mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {rank} step {step}: loss {loss.item():.4f}, norm {norm.full_tensor().item():.4f}", flush=True)
    names = mesh.mesh_dim_names
    print(f"rank {rank} at {mesh.get_coordinate()} of {names}, {mesh['shard'].size()} shards", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
