"""Large tensors are reduced in memory that all ranks of a machine see: what comes out is what small ones give."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from checks.values import REDUCE

PIECE = 1 << 20
"""Elements of a float32 that are reduced at a time."""
COUNTS = [PIECE // 16, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 5 * PIECE // 2]


def given(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    return ((torch.arange(count) * (rank + 1)) % 7 + rank).to(dtype)


def check_every_size(rank: int, size: int) -> None:
    for turn, count in enumerate(COUNTS * 2):
        tensor = given(rank + turn, count, torch.float32)
        dist.all_reduce(tensor)
        assert torch.equal(tensor, sum(given(each + turn, count, torch.float32) for each in range(size)))


def check_every_reduction(rank: int, size: int) -> None:
    count = COUNTS[0]  # of a float32, the least that is large
    for dtype in (torch.float32, torch.float64, torch.int32, torch.int64, torch.bfloat16, torch.uint8):
        for op in ("SUM", "PRODUCT", "MIN", "MAX"):
            tensor, wanted = given(rank, count, dtype), given(0, count, dtype)
            combine = {"MIN": torch.minimum, "MAX": torch.maximum}.get(op, REDUCE[op])
            for each in range(1, size):
                wanted = combine(wanted, given(each, count, dtype))
            dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
            assert torch.equal(tensor, wanted), (dtype, op)


def check_handles_and_views(rank: int, size: int) -> None:
    tensors = [torch.full((1024, 1024), float(rank + place)).T for place in range(3)]
    works = [dist.all_reduce(tensor, op=dist.ReduceOp.AVG, async_op=True) for tensor in tensors]
    small = torch.ones(3)
    dist.all_reduce(small)
    for work in works:
        work.wait()
    assert small.tolist() == [float(size)] * 3
    assert [tensor[5, 7].item() for tensor in tensors] == [(size - 1) / 2 + place for place in range(3)]


def check_groups_have_memory_of_their_own(rank: int, size: int) -> None:
    pair = dist.new_group([0, 1])
    for _ in range(3):
        tensor = torch.full((PIECE,), float(rank))
        if rank < 2:
            dist.all_reduce(tensor, group=pair)
            assert tensor[0] == tensor[-1] == 1.0
        dist.all_reduce(tensor)
        assert tensor[0] == 2.0 + sum(range(2, size))
    if rank < 2:
        dist.destroy_process_group(pair)


def check_unequal_tensors_are_refused(rank: int, size: int) -> None:
    tensor = torch.ones(PIECE + rank)
    with pytest.raises(dist.DistBackendError, match="of the group brings"):
        dist.all_reduce(tensor, group=dist.new_group(list(range(size))))
