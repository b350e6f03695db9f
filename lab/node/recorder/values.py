"""What is in a tensor, as JSON: its elements, or a summary of them. For the Python recorder."""

from __future__ import annotations

import binascii
import ctypes
import json
import math
import struct
import zlib
from collections.abc import Callable, Sequence

import torch

_FEW = 256
"""So many elements are kept as they are, for the reader of the trace to look at: looking here costs several times more,
and each of PyTorch's operators lets go of the interpreter's lock, which a thread of the backend may be waiting for."""
_MOST = 4096
"""Of a tensor of more elements a sample is kept, taken in evenly spread blocks that are a cache line or so."""
_BLOCKS, _BLOCK = 32, 8
_MOST_ADDRESSES = 64
Tensors = Sequence[torch.Tensor]
Reader = Callable[[torch.Tensor], bytes]
_KNOWN = frozenset(
    getattr(torch, name)
    for name in (
        *("float64", "float32", "float16", "bfloat16", "complex64", "complex128", "bool"),
        *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"),
    )
    if hasattr(torch, name)
)
"""Types of which a reader needs the bytes only."""
_base64 = binascii.b2a_base64
_NARROW = frozenset({torch.float16, torch.bfloat16})


def _is_readable(tensor: torch.Tensor) -> bool:
    """Whether the elements are plain numbers in this process's memory."""
    return (
        tensor.is_cpu
        and tensor.layout is torch.strided
        and (type(tensor) is torch.Tensor or type(tensor).__module__ == "torch.nn.parameter")
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def contents(tensors: Tensors, limit: int, whole: bytes, summary: bytes) -> Callable[[Tensors], bytes]:
    """What says what is in tensors that are like these: `,"name":[...]`, or nothing.

    Args:
        tensors: one side of a call.
        limit: at most so many elements are kept as they are; of more there are summaries. 0: nothing is kept.
        whole: the name of the elements.
        summary: that of the summaries.
    """
    readable = [_is_readable(t) for t in tensors]
    if not limit or not any(readable):
        return _no_contents
    kept = sum(t.numel() for t, ok in zip(tensors, readable) if ok) <= limit
    name = whole if kept else summary
    if len(tensors) == 1 and _is_small(tensors[0], kept):  # nearly always: the shortest way
        line, memory = b',"%b":["%%b"]' % name, _Memory(tensors[0].numel() * tensors[0].element_size())
        return lambda tensors: line % _base64(memory[tensors[0].data_ptr()], newline=False)
    line = b',"%b":[%%b]' % name
    readers = [reader(t, kept) if ok else _unreadable for t, ok in zip(tensors, readable)]
    return lambda tensors: line % b",".join([read(tensor) for read, tensor in zip(readers, tensors)])


def _no_contents(tensors: Tensors) -> bytes:
    return b""


def _is_small(tensor: torch.Tensor, whole: bool) -> bool:
    """Whether the bytes of all elements are kept, and lie in one piece."""
    count = tensor.numel()
    return tensor.dtype in _KNOWN and count > 0 and (whole or count <= _FEW) and tensor.is_contiguous()


def reader(tensor: torch.Tensor, whole: bool) -> Reader:
    """What says as JSON what is in any tensor that is like this one: of one shape, one type and one order in memory.

    Args:
        tensor: the first of its kind.
        whole: whether the elements are wanted, or a summary of them. Bytes in base64 say both: those of all elements of
            a small tensor, of a sample from a large one.
    """
    count, size = tensor.numel(), tensor.element_size()
    if tensor.dtype not in _KNOWN:
        return _elements if whole else _unreadable
    if not count:
        return _no_elements if whole else _summary_of_none
    if whole or count <= _FEW:
        read = _reads_all(count * size)
    elif count <= _MOST:
        read = _reads_summary(count, size, tensor.dtype)
    else:
        read = _reads_sample(count, size)
    return read if tensor.is_contiguous() else _from_scattered(read)


def _unreadable(tensor: torch.Tensor) -> bytes:
    return b"null"


def _elements(tensor: torch.Tensor) -> bytes:
    """The elements of a type that only PyTorch can read, as JSON."""
    try:
        return json.dumps(tensor.detach().reshape(-1).float().tolist(), separators=(",", ":"), allow_nan=False).encode()
    except (RuntimeError, TypeError, ValueError):  # it has no numbers, or some that JSON cannot say
        return b"null"


def _no_elements(tensor: torch.Tensor) -> bytes:
    return b'""'


def _summary_of_none(tensor: torch.Tensor) -> bytes:
    return b'{"n":0,"hash":"%08x"}' % zlib.adler32(b"")


class _Memory(dict[int, "ctypes.Array[ctypes.c_char]"]):
    """So many bytes at an address; the same few are asked for again and again."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._kind = ctypes.c_char * size

    def __missing__(self, address: int) -> ctypes.Array[ctypes.c_char]:
        if len(self) >= _MOST_ADDRESSES:
            self.clear()
        memory = self[address] = self._kind.from_address(address)
        return memory


def _reads_all(size: int) -> Reader:
    memory = _Memory(size)
    return lambda tensor: b'"%b"' % _base64(memory[tensor.data_ptr()], newline=False)


def _reads_sample(count: int, size: int) -> Reader:
    memory, join = _Memory(count * size), b"".join
    block = _BLOCK * size
    gap = (count - _BLOCK) // (_BLOCKS - 1) * size - block
    blocks = struct.Struct(f"{block}s{gap}x" * (_BLOCKS - 1) + f"{block}s").unpack_from
    return lambda tensor: b'"%b"' % _base64(join(blocks(memory[tensor.data_ptr()])), newline=False)


def _reads_summary(count: int, size: int, dtype: torch.dtype) -> Reader:
    memory = _Memory(count * size)

    def read(tensor: torch.Tensor) -> bytes:
        data = bytearray(memory[tensor.data_ptr()])
        extremes = _extremes(torch.frombuffer(data, dtype=dtype))
        return b'{"n":%d%b,"hash":"%08x"}' % (count, extremes, zlib.adler32(data))

    return read


def _from_scattered(read: Reader) -> Reader:
    return lambda tensor: read(tensor.detach().contiguous())


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
