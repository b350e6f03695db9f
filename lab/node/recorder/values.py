"""What is in a tensor, as JSON: its elements, or a summary of them. For the Python recorder."""

from __future__ import annotations

import ctypes
import json
import math
import zlib
from array import array
from collections.abc import Sequence
from typing import Any

import torch

_SAMPLE = 4096
"""A tensor of more elements is summarised from a sample of as many, taken in evenly spread blocks."""
_BLOCK = 16
_SAMPLED = b',"sampled":%d' % _SAMPLE
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
    count = tensor.numel()
    if tensor.requires_grad:
        tensor = tensor.detach()
    if not tensor.is_contiguous():
        tensor = tensor.reshape(-1)
    sampled = b""
    if count > _SAMPLE:
        tensor, sampled = _sample(tensor, count), _SAMPLED
    data = ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()) if count else b""
    return b'{"n":%d%b,"hash":"%08x"%b}' % (count, _extremes(tensor), zlib.crc32(data), sampled)


def _sample(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """A copy of evenly spread blocks of a contiguous tensor."""
    blocks = _SAMPLE // _BLOCK
    step = (count - _BLOCK) // (blocks - 1)
    return tensor.as_strided((blocks, _BLOCK), (step, 1)).clone(memory_format=torch.contiguous_format)


def _extremes(tensor: torch.Tensor) -> bytes:
    """`,"norm":...,"min":...,"max":...`; of complex numbers it is their absolute values that are compared."""
    if not tensor.numel():
        return b""
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
        flat = tensor if tensor.dim() == 1 else tensor.view(-1)
        return math.sqrt(flat.dot(flat).item())
    return float(torch.linalg.vector_norm(tensor.double()).item())


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
