"""Ten tests of collectives for any number of ranks in a process group; each way to run them runs these."""

from __future__ import annotations

import torch
import torch.distributed as dist

SIZES = (1, 1000, 100_000)


def all_reduce(rank: int, world_size: int, size: int) -> None:
    tensor = torch.full((size,), float(rank))
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((size,), world_size * (world_size - 1) / 2))


def broadcast(rank: int, world_size: int, size: int) -> None:
    tensor = torch.full((size,), float(rank))
    dist.broadcast(tensor, src=1)
    assert torch.equal(tensor, torch.ones(size))


def reduce(rank: int, world_size: int, size: int) -> None:
    tensor = torch.ones(size)
    dist.reduce(tensor, dst=2)
    if rank == 2:
        assert torch.equal(tensor, torch.full((size,), float(world_size)))


def all_gather(rank: int, world_size: int, size: int) -> None:
    parts = [torch.empty(size) for _ in range(world_size)]
    dist.all_gather(parts, torch.full((size,), float(rank)))
    assert [part[0].item() for part in parts] == [float(other) for other in range(world_size)]


def gather(rank: int, world_size: int, size: int) -> None:
    parts = [torch.empty(size) for _ in range(world_size)] if rank == 0 else None
    dist.gather(torch.full((size,), float(rank)), parts, dst=0)
    if parts is not None:
        assert [part[-1].item() for part in parts] == [float(other) for other in range(world_size)]


def scatter(rank: int, world_size: int, size: int) -> None:
    parts = [torch.full((size,), float(other)) for other in range(world_size)] if rank == 0 else None
    part = torch.empty(size)
    dist.scatter(part, parts, src=0)
    assert torch.equal(part, torch.full((size,), float(rank)))


def ring(rank: int, world_size: int, size: int) -> None:
    came = torch.empty(size)
    work = dist.isend(torch.full((size,), float(rank)), (rank + 1) % world_size)
    dist.recv(came, (rank - 1) % world_size)
    work.wait()
    assert torch.equal(came, torch.full((size,), float((rank - 1) % world_size)))


def largest(rank: int, world_size: int, size: int) -> None:
    tensor = torch.arange(size, dtype=torch.float64) + rank
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    assert torch.equal(tensor, torch.arange(size, dtype=torch.float64) + world_size - 1)


def barrier(rank: int, world_size: int, size: int) -> None:
    for _ in range(3):
        dist.barrier()
    assert dist.get_rank() == rank


def objects(rank: int, world_size: int, size: int) -> None:
    found: list[object] = [None] * world_size
    dist.all_gather_object(found, {"rank": rank, "size": size})
    assert found == [{"rank": other, "size": size} for other in range(world_size)]


BODIES = (all_reduce, broadcast, reduce, all_gather, gather, scatter, ring, largest, barrier, objects)
