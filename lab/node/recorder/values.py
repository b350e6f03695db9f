"""What is in a tensor, as JSON can say it: its elements, or a summary of them. For the Python recorder."""

from __future__ import annotations

import ctypes
import math
import zlib
from array import array
from collections.abc import Sequence
from typing import Any, Literal

import torch

_MOST = 4096
"""A tensor of more elements is summarised from a sample, taken in evenly spread blocks, as by the compiled recorder."""
_BLOCKS, _BLOCK = 32, 8
_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_CODES: dict[torch.dtype, Literal["f", "d", "q", "i"]] = {
    torch.float32: "f",
    torch.float64: "d",
    torch.int64: "q",
    torch.int32: "i",
}
"""How Python reads what lies in memory; it is twice as fast as torch after a large call has emptied the caches."""


def contents(side: str, tensors: Sequence[torch.Tensor], limit: int) -> dict[str, Any]:
    """`iv` or `ov`: the elements of tensors, if they are no more than the limit; else `is` or `os`: summaries of each.

    Nothing where none can be read, or the limit is 0.
    """
    readable = [is_readable(tensor) for tensor in tensors]
    if not limit or not any(readable):
        return {}
    whole = sum(tensor.numel() for tensor, ok in zip(tensors, readable) if ok) <= limit
    read = elements if whole else summary
    return {side + ("v" if whole else "s"): [read(tensor) if ok else None for tensor, ok in zip(tensors, readable)]}


def elements(tensor: torch.Tensor) -> list[Any]:
    """All elements in order."""
    flat = tensor.detach().reshape(-1)
    if flat.is_complex():
        parts = torch.view_as_real(flat)
        return [_said(pair, parts.dtype) for pair in parts.tolist()]
    return _said(flat.tolist(), flat.dtype)


def summary(tensor: torch.Tensor) -> dict[str, Any]:
    """`n`, `norm`, `min`, `max` and `hash`, and `sampled` where they are those of a sample.

    Of complex numbers it is their absolute values that are compared.
    """
    flat = tensor.detach().contiguous()
    count, dtype, data = flat.numel(), flat.dtype, sample(flat)
    said: dict[str, Any] = {"n": count}
    if count:
        code = _CODES.get(dtype)
        numbers: list[Any] = memoryview(data).cast("B").cast(code).tolist() if code else _compared(data, dtype)
        norm, least, greatest = math.hypot(*numbers), min(numbers) + 0, max(numbers) + 0
        if not math.isfinite(norm) and any(map(math.isnan, numbers)):
            norm = least = greatest = math.nan
        said["norm"] = _sayable(norm)
        said["min"], said["max"] = _said([least, greatest], dtype)
    said["hash"] = f"{zlib.adler32(data):08x}"
    if count > _MOST:
        said["sampled"] = _BLOCKS * _BLOCK
    return said


def sample(flat: torch.Tensor) -> Any:
    """The memory of all elements, as long as the tensor is there; of a large one, a copy of some."""
    count, size = flat.numel(), flat.element_size()
    memory = memoryview((ctypes.c_char * (count * size)).from_address(flat.data_ptr()))
    if count <= _MOST:
        return memory
    step, block = (count - _BLOCK) // (_BLOCKS - 1) * size, _BLOCK * size
    return bytearray().join([memory[at : at + block] for at in range(0, _BLOCKS * step, step)])


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether the elements are plain numbers in this process's memory."""
    return (
        tensor.is_cpu
        and tensor.layout is torch.strided
        and (type(tensor) is torch.Tensor or type(tensor).__module__ == "torch.nn.parameter")
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def _compared(data: Any, dtype: torch.dtype) -> list[Any]:
    numbers = torch.frombuffer(data, dtype=dtype)
    return list((numbers.abs() if dtype.is_complex else numbers).tolist())


def _said(numbers: list[Any], dtype: torch.dtype) -> list[Any]:
    """Numbers as JSON can say them, in no more digits than tell those of their type from one another."""
    if dtype not in _NARROW:
        return [_sayable(number) for number in numbers]
    shorts = [float(text) for text in ("%.7g " * len(numbers) % tuple(numbers)).split()]
    return [
        short if back == number and number - number == 0 else _sayable(float(f"{number:.9g}"))
        for number, short, back in zip(numbers, shorts, array("f", shorts))
    ]


def _sayable(number: Any) -> Any:
    return str(number) if number - number != 0 else number
