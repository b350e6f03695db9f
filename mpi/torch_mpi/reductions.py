"""Which reduction of which type MPI can do, and how the others are done by way of those."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._C._distributed_c10d import ReduceOp

from torch_mpi.library import MPI

TYPES: dict[torch.dtype, MPI.Datatype] = {
    torch.float32: MPI.FLOAT,
    torch.float64: MPI.DOUBLE,
    torch.int8: MPI.INT8_T,
    torch.int16: MPI.INT16_T,
    torch.int32: MPI.INT32_T,
    torch.int64: MPI.INT64_T,
    torch.uint8: MPI.UINT8_T,
    torch.uint16: MPI.UINT16_T,
    torch.uint32: MPI.UINT32_T,
    torch.uint64: MPI.UINT64_T,
    torch.complex64: MPI.C_FLOAT_COMPLEX,
    torch.complex128: MPI.C_DOUBLE_COMPLEX,
}
"""Types that MPI can reduce."""
_SUMS = {"SUM": MPI.SUM, "AVG": MPI.SUM, "PRODUCT": MPI.PROD}
_ORDER = {"MIN": MPI.MIN, "MAX": MPI.MAX}
_BITS = {"BAND": MPI.BAND, "BOR": MPI.BOR, "BXOR": MPI.BXOR}
COMBINE = {"SUM": torch.add, "AVG": torch.add, "PRODUCT": torch.mul, "MIN": torch.minimum, "MAX": torch.maximum}
"""What torch itself does for two tensors."""
_TRUTHS = {"SUM": MPI.MAX, "PRODUCT": MPI.MIN, **_ORDER, **_BITS}
"""For bool, kept in bytes that are 0 or 1: a sum is true where any is, a product where all are."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """How tensors of one type are reduced."""

    op: MPI.Op
    type: MPI.Datatype
    """Of what is given to MPI."""
    by_way_of: torch.dtype | None
    """The type into which tensors are converted for it, and back from it; None: they stay as they are."""
    combine: Callable[..., object] | None
    """What does it for two tensors of that type, into `out`; None: MPI alone."""
    mean: bool
    """Whether the result is to be divided by the number of ranks."""


_NAMES: dict[Any, str] = {kind: name for name, kind in ReduceOp.RedOpType.__members__.items()}
"""An enumeration of pybind11 takes 3 us to tell a name: as long as a small reduction."""


def name_of(op: Any) -> str:
    """The name of a `ReduceOp`."""
    return _NAMES[getattr(op, "op", op)]


@cache
def reduction_of(op: str, dtype: torch.dtype) -> Reduction:
    """How to reduce tensors of a type.

    Raises:
        NotImplementedError: this type has no such reduction.
    """
    by_way_of: torch.dtype | None = None
    if dtype is torch.bool:
        ops, given = _TRUTHS, torch.uint8
    elif dtype.is_complex:
        ops, given = _SUMS, dtype if dtype in TYPES else torch.complex64
        by_way_of = None if dtype in TYPES else given
    elif dtype.is_floating_point:
        ops, given = {**_SUMS, **_ORDER}, dtype if dtype in TYPES else torch.float32
        by_way_of = None if dtype in TYPES else given
    else:
        ops, given = {**_SUMS, **_ORDER, **_BITS}, dtype
    if op not in ops or given not in TYPES:
        raise NotImplementedError(
            f"no reduction {op} of {dtype}; it has {', '.join(ops) if given in TYPES else 'none'}"
        )
    return Reduction(op=ops[op], type=TYPES[given], by_way_of=by_way_of, combine=COMBINE.get(op), mean=op == "AVG")


def divide(total: torch.Tensor, ranks: int) -> None:
    """Make a sum over ranks their mean, in place; integers are rounded towards zero."""
    total.div_(ranks, rounding_mode=None if total.is_floating_point() or total.is_complex() else "trunc")
