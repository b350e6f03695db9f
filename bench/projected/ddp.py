"""DistributedDataParallel: each rank has a batch of its own size, whatever the world; gradients in several buckets."""

import sys

import torch
import torch.distributed as dist
from layers import linear
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, WIDTH, LAYERS, ROWS = int(sys.argv[1]), 512, 4, 192
ON_DEVICE = "device" in sys.argv


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (linear(WIDTH, ON_DEVICE), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=1)
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
