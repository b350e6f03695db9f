"""What is in a tensor, as JSON can say it: its elements, or a summary of them. For the Python recorder."""

from __future__ import annotations

import ctypes
import math
import zlib
from array import array
from collections.abc import Sequence
from typing import Any

import torch

_MOST = 4096
"""A tensor of more elements is summarised from a sample, taken in evenly spread blocks, as by the compiled recorder."""
_BLOCKS, _BLOCK = 64, 4
_NARROW = (torch.float32, torch.float16, torch.bfloat16)


def contents(side: str, tensors: Sequence[torch.Tensor], limit: int) -> dict[str, Any]:
    """`iv` or `ov`: the elements of tensors, if they are no more than the limit; else `is` or `os`: summaries of each.

    Nothing where none can be read, or the limit is 0.
    """
    readable = [_is_readable(tensor) for tensor in tensors]
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
    """`n`, `norm`, `min`, `max` and `hash`, and `sampled` where they are those of a sample."""
    flat = tensor.detach().contiguous()
    count = flat.numel()
    if count > _MOST:
        step = (count - _BLOCK) // (_BLOCKS - 1)
        flat = flat.as_strided((_BLOCKS, _BLOCK), (step, 1)).contiguous()
    data = ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size())
    said = {"n": count, **(_extremes(flat) if count else {}), "hash": f"{zlib.adler32(data):08x}"}
    return said if flat.numel() == count else {**said, "sampled": flat.numel()}


def _is_readable(tensor: torch.Tensor) -> bool:
    """Whether the elements are plain numbers in this process's memory."""
    return (
        tensor.is_cpu
        and tensor.layout is torch.strided
        and (type(tensor) is torch.Tensor or type(tensor).__module__ == "torch.nn.parameter")
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def _extremes(flat: torch.Tensor) -> dict[str, Any]:
    """Of complex numbers it is their absolute values that are compared."""
    flat = (flat.abs() if flat.is_complex() else flat).view(-1)
    numbers = flat.tolist()
    norm, least, greatest = math.hypot(*numbers), min(numbers) + 0, max(numbers) + 0
    if not math.isfinite(norm) and any(map(math.isnan, numbers)):
        norm = least = greatest = math.nan
    (norm,), (least, greatest) = _said([norm], torch.float64), _said([least, greatest], flat.dtype)
    return {"norm": norm, "min": least, "max": greatest}


def _said(numbers: list[Any], dtype: torch.dtype) -> list[Any]:
    """Numbers as JSON can say them; floats of 32 bits or less with no more digits than tell them from all others."""
    if dtype in _NARROW:
        few = [float(f"{number:.7g}") for number in numbers]
        numbers = [
            short if back == number else float(f"{number:.9g}")
            for short, back, number in zip(few, array("f", few), numbers)
        ]
    return [str(number) if number - number != 0 else number for number in numbers]
