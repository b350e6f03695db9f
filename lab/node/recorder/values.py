"""What is in a tensor, as JSON: its elements, or a summary of them. For the Python recorder."""

from __future__ import annotations

import ctypes
import functools
import json
import math
import struct
import zlib
from array import array
from collections.abc import Sequence
from typing import Any

import torch

_MOST = 4096
"""A tensor of more elements is summarised from a sample, taken in evenly spread blocks that are a cache line or two."""
_BLOCKS, _BLOCK = 64, 16
_SAMPLED = b',"sampled":%d' % (_BLOCKS * _BLOCK)
_FEW = 256
"""So many numbers are summarised without PyTorch, whose operators let go of the interpreter's lock for nothing: the
threads of a backend and of the script would take turns with every one of them."""
_FORMATS = {
    torch.float32: "f",
    torch.float64: "d",
    torch.int64: "q",
    torch.int32: "i",
    torch.int16: "h",
    torch.int8: "b",
    torch.uint8: "B",
    torch.bool: "B",
}
_NARROW = frozenset({torch.float32, torch.float16, torch.bfloat16})


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


def describe(tensors: Sequence[torch.Tensor], readable: Sequence[bool], whole: bool) -> bytes:
    """A JSON list with the elements of each tensor in order, or a summary of each; null where it is not readable."""
    write = _elements if whole else _summary
    return b"[" + b",".join([write(t) if ok else b"null" for t, ok in zip(tensors, readable)]) + b"]"


def _elements(tensor: torch.Tensor) -> bytes:
    if tensor.dim() != 1:
        tensor = tensor.detach().reshape(-1)
    if tensor.dtype in _NARROW:
        return b"[" + _narrow_floats(tensor.tolist()) + b"]"
    try:
        if tensor.is_complex():
            return _json(torch.view_as_real(tensor.detach()).tolist())
        return _json(tensor.tolist())
    except (RuntimeError, TypeError):  # a type that has no numbers
        return b"null"


def _narrow_floats(values: list[float]) -> bytes:
    """Floats of 32 bits or less, each with 7 digits where that says it exactly, else with 9, which always does."""
    exact = array("f", values)
    short = _rounded(values, 7)
    if array("f", short) != exact:
        short = [s if a == e else n for s, a, e, n in zip(short, array("f", short), exact, _rounded(values, 9))]
    text = repr(short)
    if "n" in text:  # nan or inf
        text = json.dumps(_plain(short))
    return text[1:-1].replace(" ", "").encode()


def _rounded(values: list[float], digits: int) -> list[float]:
    text = ",".join([f"%.{digits}g"] * len(values)) % tuple(values)
    return [float(word) for word in text.split(",")] if text else []


def _summary(tensor: torch.Tensor) -> bytes:
    count, size = tensor.numel(), tensor.element_size()
    if not tensor.is_contiguous():
        tensor = tensor.detach().reshape(-1)
    if count <= _MOST:
        data, sampled = ctypes.string_at(tensor.data_ptr(), count * size), b""
    else:
        memory = (ctypes.c_char * (count * size)).from_address(tensor.data_ptr())
        data, sampled = b"".join(_blocks(count, size).unpack_from(memory)), _SAMPLED
    extremes = _extremes(data, tensor.dtype) if count else b""
    return b'{"n":%d%b,"hash":"%08x"%b}' % (count, extremes, zlib.crc32(data), sampled)


@functools.lru_cache(maxsize=1024)
def _blocks(count: int, size: int) -> struct.Struct:
    """What unpacks evenly spread blocks of so many elements of so many bytes."""
    block = _BLOCK * size
    gap = (count - _BLOCK) // (_BLOCKS - 1) * size - block
    return struct.Struct(f"{block}s{gap}x" * (_BLOCKS - 1) + f"{block}s")


def _extremes(data: bytes, dtype: torch.dtype) -> bytes:
    """`,"norm":...,"min":...,"max":...` of the numbers in these bytes; empty where they cannot be computed with."""
    form = _FORMATS.get(dtype)
    if form is not None and len(data) <= _FEW * dtype.itemsize:
        numbers = memoryview(data).cast(form).tolist()  # type: ignore[call-overload]
        norm, low, high = math.hypot(*numbers), min(numbers), max(numbers)
        if norm - norm != 0:  # nan compares with nothing
            low, high = _not_finite(numbers)
        elif form == "f":
            return b',"norm":%.9g,"min":%.9g,"max":%.9g' % (norm, low, high)
    else:
        try:
            norm, low, high = _computed(torch.frombuffer(bytearray(data), dtype=dtype))
        except RuntimeError:  # a type that cannot be computed with
            return b""
    return b',"norm":%b,"min":%b,"max":%b' % (_real(norm), _real(low), _real(high))


def _not_finite(numbers: list[float]) -> tuple[float, float]:
    """The least and the greatest number, both nan if one is."""
    if any(number != number for number in numbers):
        return math.nan, math.nan
    return min(numbers), max(numbers)


def _computed(tensor: torch.Tensor) -> tuple[float, float, float]:
    """Norm, least and greatest number; of complex numbers it is their absolute values that are compared."""
    if tensor.dtype is not torch.float32:
        if tensor.is_complex():
            tensor = tensor.abs()
        elif tensor.dtype in _NARROW:
            tensor = tensor.float()
        elif tensor.dtype is torch.bool:
            tensor = tensor.to(torch.uint8)
    least, greatest = tensor.aminmax()
    low, high = least.item(), greatest.item()
    if low == high == 0:
        return 0.0, low, high
    if tensor.is_floating_point() and 1e-15 < max(-low, high) < 1e15:  # neither tiny nor huge: the fast way
        return math.sqrt(tensor.dot(tensor).item()), low, high
    return float(torch.linalg.vector_norm(tensor.double()).item()), low, high


def _real(value: float) -> bytes:
    return b"%a" % value if value - value == 0 else b'"%a"' % value


def _json(value: Any) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        return json.dumps(_plain(value), separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    """Floats that JSON cannot say as text."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and value - value != 0 else value
