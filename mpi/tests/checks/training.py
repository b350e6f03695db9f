"""DDP and FSDP2 train as they do with gloo: the same losses, and the same parameters everywhere."""

from __future__ import annotations

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.testing import assert_close


def check_training(rank: int, size: int) -> None:
    """Trains in the group of all ranks, then in one of gloo in its place."""
    path = [os.path.join(tempfile.gettempdir(), f"torch-mpi-{os.getpid()}")]
    dist.broadcast_object_list(path, src=0)
    ours = [*ddp(rank, size), *fsdp(rank, size)]
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"file://{path[0]}", rank=rank, world_size=size)
    theirs = [*ddp(rank, size), *fsdp(rank, size)]
    dist.destroy_process_group()
    if size == 2:  # sums of two numbers have one order
        assert ours == theirs
    assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    dist.init_process_group("mpi")


def ddp(rank: int, size: int) -> list[float]:
    torch.manual_seed(rank)  # DDP gives everyone rank 0's parameters
    net = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1))
    model = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.001)
    losses = train(model, rank)
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in net.parameters()])
    everyone = [torch.empty_like(flat) for _ in range(size)]
    dist.all_gather(everyone, flat)
    assert all(torch.equal(flat, other) for other in everyone)
    return losses


def fsdp(rank: int, size: int) -> list[float]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    fully_shard(net, mesh=init_device_mesh("cpu", (size,)))
    return train(net, rank)


def train(model: nn.Module, rank: int) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(100 + rank)
    inputs = torch.randn(64, 16, generator=generator)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), inputs[:, :1] - inputs[:, 1:2])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
