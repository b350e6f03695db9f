"""Groups of some of the ranks."""

from __future__ import annotations

import re
from datetime import timedelta

import torch
import torch.distributed as dist

from checks.handles import refused


def check_identity(rank: int, size: int) -> None:
    assert dist.get_backend() == "mpi"
    assert dist.is_mpi_available()
    world = dist.group.WORLD
    assert (world.name(), world.rank(), world.size()) == ("mpi", rank, size)
    assert world.group_name == "0"
    assert world.group_desc == "default_pg"


def check_new_group(rank: int, size: int) -> None:
    pair = dist.new_group([0, 1])
    if rank < 2:
        tensor = torch.full((3,), float(rank))
        dist.all_reduce(tensor, group=pair)
        assert tensor.tolist() == [1.0] * 3
        assert (dist.get_rank(pair), dist.get_world_size(pair)) == (rank, 2)
        dist.destroy_process_group(pair)
    last = dist.new_group([size - 1])
    if rank == size - 1:
        dist.all_reduce(torch.ones(1), group=last)
    turned = dist.new_group(list(range(size))[::-1], sort_ranks=False) if _has_sort_ranks() else None
    if turned is not None:
        tensor = torch.tensor([float(rank)])
        dist.broadcast(tensor, group_src=0, group=turned)
        assert tensor.item() == size - 1


def _has_sort_ranks() -> bool:
    import inspect

    return "sort_ranks" in inspect.signature(dist.new_group).parameters


def check_groups_at_the_same_time(rank: int, size: int) -> None:
    other = dist.new_group()
    first, second = torch.full((50_000,), float(rank)), torch.full((50_000,), 2.0 * rank)
    if rank % 2:  # the order among groups is free
        works = [dist.all_reduce(second, group=other, async_op=True), dist.all_reduce(first, async_op=True)]
    else:
        works = [dist.all_reduce(first, async_op=True), dist.all_reduce(second, group=other, async_op=True)]
    for work in works:
        work.wait()
    total = float(sum(range(size)))
    assert (first[0].item(), second[-1].item()) == (total, 2 * total)


def check_split(rank: int, size: int) -> None:
    world = dist.group.WORLD
    mine = [one for one in range(size) if one % 2 == rank % 2]
    part = world.split_group(mine)
    tensor = torch.tensor([float(rank)])
    part.allreduce([tensor]).wait()
    assert tensor.item() == sum(mine)
    assert part.size() == len(mine)
    part.shutdown()


def check_monitored_barrier(rank: int, size: int) -> None:
    world = dist.group.WORLD
    world.monitored_barrier(timedelta(seconds=60))
    if rank == size - 1:  # comes when all others have given up
        dist.barrier()
    else:
        said = refused(lambda: world.monitored_barrier(timedelta(seconds=0.1), wait_all_ranks=True))
        assert re.search(f"{size - 1} did not call it" if rank == 0 else "rank 0 did not let this rank go on", said), (
            said
        )
        dist.barrier()


def check_a_group_is_closed(rank: int, size: int) -> None:
    group = dist.new_group()
    dist.all_reduce(torch.ones(1), group=group, async_op=True)
    dist.destroy_process_group(group)
    assert "destroyed" in refused(lambda: group.allreduce([torch.ones(1)]))


def check_device_mesh(rank: int, size: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    whole = torch.arange(size * 6.0).reshape(size * 2, 3)
    spread = distribute_tensor(whole, init_device_mesh("cpu", (size,)), [Shard(0)])
    assert torch.equal(spread.full_tensor(), whole)
