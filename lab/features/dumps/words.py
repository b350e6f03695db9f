"""The words of flight recorder dumps: how PyTorch writes operations, dtypes and states there.

Its sources: `torch/csrc/distributed/c10d/FlightRecorder.hpp`, version 2.10 of the format, and
`torch/distributed/flight_recorder`, whose `torchfrtrace` reads them.
"""

from __future__ import annotations

import re

from lab.operations import OPERATIONS

VERSION = "2.10"
"""Of the format that is written; PyTorch 2.13 has it."""
COMPLETED, STARTED, SCHEDULED = "completed", "started", "scheduled"
"""The states of a call."""
BACKENDS = ("nccl", "ncclx", "xccl", "gloo", "rccl", "rcclx", "mccl", "hccl")
"""Before the colon of a call's name; `torchfrtrace` refuses others."""
UNDESCRIBED, DEFAULT = "undefined", "default_pg"
"""Descriptions of groups that nobody described, and of the one that init_process_group makes."""

_DTYPES = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
    "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool",
    "complex64": "ComplexFloat", "complex128": "ComplexDouble", "complex32": "ComplexHalf",
    "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64",
}  # fmt: skip
_WIDTHS = {
    "float64": 8, "int64": 8, "uint64": 8, "complex64": 8, "complex128": 16, "float32": 4, "int32": 4, "uint32": 4,
    "complex32": 4, "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2,
}  # fmt: skip
_FROM_DUMPS = {dumped: name for name, dumped in _DTYPES.items()}
_OTHER_NAMES = {
    "_broadcast_oop": "broadcast",
    "_reduce_oop": "reduce",
    "all_gather_single": "all_gather_into_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "all_reduce_barrier": "barrier",
    "REDUCE_SCATTER_coalesced": "reduce_scatter_tensor_coalesced",
    "all_to_all": "all_to_all",
    "barrier": "barrier",
}
"""Names in dumps of operations that are written otherwise, or in several ways."""
_OPERATIONS = {(row.dumped or row.name): row.name for row in OPERATIONS.values()} | _OTHER_NAMES
_PEERS = re.compile(r"(\d{1,7})(->|<-)(\d{1,7})")


def dumped_operation(op: str) -> str:
    """How dumps spell an operation."""
    row = OPERATIONS.get(op)
    return row.dumped or op if row is not None else op


def operation_of(dumped: str) -> str:
    """The operation that a dump names; one that is not known is called as there."""
    return _OPERATIONS.get(dumped, dumped)


def dumped_dtype(dtype: str) -> str:
    """How dumps spell a dtype: `Float`."""
    return _DTYPES.get(dtype, dtype[:1].upper() + dtype[1:])


def dtype_of(dumped: str) -> str:
    """The dtype that a dump names, as PyTorch's Python has it: `float32`."""
    return _FROM_DUMPS.get(dumped, dumped[:1].lower() + dumped[1:])


def width_of(dtype: str) -> int:
    """Bytes of an element: those of dtypes that are not listed are one byte wide."""
    return _WIDTHS.get(dtype, 1)


def message_name(op: str, here: int, there: int) -> str:
    """How dumps spell a message between two ranks of a group: `send 0->1`, `recv 1<-0`."""
    return f"{op} {here}{'->' if op == 'send' else '<-'}{there}"


def peer_of(words: str) -> int | None:
    """The group rank at the other end of a message that is spelt like that, of `0->1` that of 1; None: not told."""
    told = _PEERS.fullmatch(words)
    return int(told[3]) if told is not None else None
