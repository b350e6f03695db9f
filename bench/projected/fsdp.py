"""FSDP2: every layer is sharded over all ranks, gathered before it computes, its gradients scattered afterwards."""

import sys

import torch
import torch.distributed as dist
from layers import linear
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

STEPS, WIDTH, LAYERS, ROWS = int(sys.argv[1]), 512, 4, 192
ON_DEVICE = "device" in sys.argv


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(*(layer for _ in range(LAYERS) for layer in (linear(WIDTH, ON_DEVICE), nn.ReLU())))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    batch = torch.randn(ROWS, WIDTH)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
