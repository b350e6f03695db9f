"""What calls are given: brought into one shape, and checked before anybody waits for it.

Errors are told in the words that follow the name of the call: `group.py` puts it in front, with the rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._C._distributed_c10d import ReduceOp

from torch_mpi.buffers import Tensors, checked


def listed(tensors: Any) -> Tensors:
    """A list: torch's older signatures take one tensor where the newer ones take a list with one."""
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def first_list(lists: Any) -> Tensors:
    """The list of this rank's one device; empty where there is none, as at ranks that give or get nothing."""
    if not lists:
        return []
    return list(lists) if isinstance(lists[0], torch.Tensor) else list(lists[0])


def dense(tensors: Tensors) -> Tensors:
    """The tensors, none of which is sparse or elsewhere than in the CPU's memory."""
    return [checked(tensor) for tensor in tensors]


def options(kind: Any, given: Any, *, root: int | None = None, op: Any = None) -> Any:
    """What was given if it is a set of options; else a new one, of what was given one by one."""
    if given is not None and hasattr(given, "asyncOp"):
        return given
    made = kind()
    if isinstance(given, (ReduceOp, ReduceOp.RedOpType)):
        op = given
    elif isinstance(given, int):
        root = given
    if root is not None:
        made.rootRank = root
    if op is not None:
        made.reduceOp = op
    return made


def member(rank: int, size: int) -> int:
    """The rank, which is one of the group."""
    if not 0 <= rank < size:
        raise ValueError(f"rank {rank} is not in a group of {size}")
    return rank


def check_count(given: Sequence[Any], size: int, what: str) -> None:
    """There is one for each rank."""
    if len(given) != size:
        raise ValueError(f"takes as many {what} as there are ranks, {size}, found {len(given)}")


def one_each(tensors: Tensors, mine: torch.Tensor, rank: int, size: int) -> Tensors:
    """A list with a tensor for each rank, of which this rank's is as large as the one that belongs to it."""
    check_count(tensors, size, "tensors in a list")
    for tensor in dense(tensors):
        if tensor.dtype != mine.dtype:
            raise ValueError(f"takes tensors of one type, found {tensor.dtype} and {mine.dtype}")
    own = tensors[rank]
    if own.numel() != mine.numel():
        raise ValueError(
            f"this rank's tensor in the list, of shape {list(own.shape)}, "
            f"is not as large as that of shape {list(mine.shape)}"
        )
    return tensors


def check_whole(size: int, *, whole: torch.Tensor, part: torch.Tensor) -> None:
    """One tensor has room for a part of each rank."""
    if whole.dtype != part.dtype:
        raise ValueError(f"takes tensors of one type, found {whole.dtype} and {part.dtype}")
    if whole.numel() != size * part.numel():
        raise ValueError(f"a tensor of {whole.numel()} elements is not {size} times one of {part.numel()} elements")


def rows_of(tensor: torch.Tensor, split: Sequence[int] | None, size: int, which: str) -> list[int]:
    """How many of a tensor's rows belong to each rank."""
    rows = tensor.shape[0] if tensor.dim() else 1
    if not split:
        if rows % size:
            raise ValueError(f"the {which} of {rows} rows cannot be divided equally among {size} ranks")
        return [rows // size] * size
    check_count(split, size, f"{which} split sizes")
    if sum(split) != rows:
        raise ValueError(f"the {which} has {rows} rows, its split sizes add up to {sum(split)}")
    return list(split)
