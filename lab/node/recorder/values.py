"""What is in a tensor, as JSON: its elements, or a summary of them. For the Python recorder."""

from __future__ import annotations

import binascii
import ctypes
import functools
import json
import math
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import torch

_FEW = 256
"""So many elements are kept as they are, for the reader of the trace to look at: looking here costs several times more,
and each of PyTorch's operators lets go of the interpreter's lock, which a thread of the backend may be waiting for."""
_MOST = 4096
"""Of a tensor of more elements a sample is kept, taken in evenly spread blocks that are a cache line or so."""
_BLOCKS, _BLOCK = 32, 8
_MOST_ADDRESSES = 64
_KNOWN = frozenset(
    getattr(torch, name)
    for name in (
        *("float64", "float32", "float16", "bfloat16", "complex64", "complex128", "bool"),
        *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"),
    )
    if hasattr(torch, name)
)
"""Types of which a reader needs the bytes only."""
_NARROW = frozenset({torch.float16, torch.bfloat16})


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether the elements are plain numbers in this process's memory."""
    return (
        tensor.is_cpu
        and tensor.layout is torch.strided
        and (type(tensor) is torch.Tensor or type(tensor).__module__ == "torch.nn.parameter")
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


@dataclass(frozen=True)
class Reader:
    """Says what is in tensors that are alike: of one shape, one type and one order in memory."""

    __slots__ = ("say", "take")

    take: Callable[[torch.Tensor], bytes]
    """What is needed of a tensor as it is now; quickly had, without PyTorch's operators."""
    say: Callable[[bytes], bytes]
    """That as JSON."""


def reader(tensor: torch.Tensor, whole: bool) -> Reader:
    """The reader for all tensors that are like this one.

    Args:
        tensor: the first of its kind.
        whole: whether the elements are wanted, or a summary of them. Bytes in base64 say both: those of all elements of
            a small tensor, of a sample from a large one.
    """
    count, size = tensor.numel(), tensor.element_size()
    if tensor.dtype not in _KNOWN:
        return Reader(_elements, bytes) if whole else UNREADABLE
    if not count:
        return Reader(_nothing, _in_base64 if whole else _summary_of_none)
    take = _takes_all(count * size) if whole or count <= _MOST else _takes_sample(count, size)
    if not tensor.is_contiguous():
        take = _from_scattered(take)
    if _FEW < count <= _MOST and not whole:
        return Reader(take, functools.partial(_summary, count, tensor.dtype))
    return Reader(take, _in_base64)


def _nothing(tensor: torch.Tensor) -> bytes:
    return b""


UNREADABLE = Reader(_nothing, lambda _: b"null")
"""What is said of a tensor that cannot be read."""


def _elements(tensor: torch.Tensor) -> bytes:
    """The elements of a type that only PyTorch can read, as JSON."""
    try:
        return json.dumps(tensor.detach().reshape(-1).float().tolist(), separators=(",", ":"), allow_nan=False).encode()
    except (RuntimeError, TypeError, ValueError):  # it has no numbers, or some that JSON cannot say
        return b"null"


def _in_base64(data: bytes) -> bytes:
    return b'"' + binascii.b2a_base64(data, newline=False) + b'"'


def _at_address(size: int) -> Callable[[int], ctypes.Array[ctypes.c_char]]:
    """What gives access to so many bytes at an address; the same few are asked for again and again."""
    known: dict[int, ctypes.Array[ctypes.c_char]] = {}
    kind = ctypes.c_char * size

    def at(address: int) -> ctypes.Array[ctypes.c_char]:
        memory = known.get(address)
        if memory is None:
            if len(known) >= _MOST_ADDRESSES:
                known.clear()
            memory = known[address] = kind.from_address(address)
        return memory

    return at


def _takes_all(size: int) -> Callable[[torch.Tensor], bytes]:
    memory = _at_address(size)
    return lambda tensor: bytes(memory(tensor.data_ptr()))


def _takes_sample(count: int, size: int) -> Callable[[torch.Tensor], bytes]:
    memory, join = _at_address(count * size), b"".join
    block = _BLOCK * size
    gap = (count - _BLOCK) // (_BLOCKS - 1) * size - block
    blocks = struct.Struct(f"{block}s{gap}x" * (_BLOCKS - 1) + f"{block}s").unpack_from
    return lambda tensor: join(blocks(memory(tensor.data_ptr())))


def _from_scattered(take: Callable[[torch.Tensor], bytes]) -> Callable[[torch.Tensor], bytes]:
    return lambda tensor: take(tensor.detach().contiguous())


def _summary_of_none(data: bytes) -> bytes:
    return b'{"n":0,"hash":"%08x"}' % zlib.adler32(data)


def _summary(count: int, dtype: torch.dtype, data: bytes) -> bytes:
    extremes = _extremes(torch.frombuffer(bytearray(data), dtype=dtype))
    return b'{"n":%d%b,"hash":"%08x"}' % (count, extremes, zlib.adler32(data))


def _extremes(tensor: torch.Tensor) -> bytes:
    """`,"norm":...,"min":...,"max":...`; of complex numbers it is their absolute values that are compared."""
    try:
        if tensor.dtype is not torch.float32:
            if tensor.is_complex():
                tensor = tensor.abs()
            elif tensor.dtype in _NARROW:
                tensor = tensor.float()
            elif tensor.dtype is torch.bool:
                tensor = tensor.to(torch.uint8)
        least, greatest = tensor.aminmax()
        low, high = least.item(), greatest.item()
        norm = _norm(tensor, low, high)
    except RuntimeError:  # a type that cannot be computed with
        return b""
    return b',"norm":%b,"min":%b,"max":%b' % (_real(norm), _real(low), _real(high))


def _norm(tensor: torch.Tensor, low: float, high: float) -> float:
    """The square root of the sum of squares; where floats are neither tiny nor huge, the fast way."""
    if low == high == 0:
        return 0.0
    if tensor.is_floating_point() and 1e-15 < max(-low, high) < 1e15:
        return math.sqrt(tensor.dot(tensor).item())
    return float(torch.linalg.vector_norm(tensor.double()).item())


def _real(value: float) -> bytes:
    return b"%a" % value if value - value == 0 else b'"%a"' % value
