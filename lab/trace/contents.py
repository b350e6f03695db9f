"""What was in a tensor, from its bytes: the Python recorder keeps those of small ones and leaves reading them to us."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from array import array
from collections.abc import Sequence
from typing import Any

_FORMATS = {
    "float64": "d",
    "float32": "f",
    "float16": "e",
    "bfloat16": "H",
    "complex64": "f",
    "complex128": "d",
    "int64": "q",
    "int32": "i",
    "int16": "h",
    "int8": "b",
    "uint64": "Q",
    "uint32": "I",
    "uint16": "H",
    "uint8": "B",
    "bool": "?",
}
"""By PyTorch's name of a type: what `struct` calls it, or its parts."""


def elements(said: Any, dtype: str) -> Any:
    """The elements of a tensor; None where they were not kept.

    Args:
        said: what the trace says of them: a text is their bytes in base64, all else they are themselves.
        dtype: PyTorch's name of their type.

    Raises:
        ValueError: these are not the bytes of such a tensor.
    """
    if not isinstance(said, str):
        return said
    numbers: Sequence[Any] = _numbers(_bytes(said), dtype)
    if dtype in ("float32", "float16", "bfloat16", "complex64"):
        numbers = _shortened(numbers)
    found = [str(n) if isinstance(n, float) and n - n != 0 else n for n in numbers]
    if dtype.startswith("complex"):
        return [list(pair) for pair in zip(found[::2], found[1::2], strict=True)]
    return found


def summary(said: Any, dtype: str, count: int) -> Any:
    """`n`, `norm`, `min`, `max`, `hash` of a tensor, and `sampled` if that is what they are of; None if none was kept.

    Args:
        said: what the trace says: a text is its bytes, or those of a sample of its elements, in base64, all else is the
            summary itself.
        dtype: PyTorch's name of their type.
        count: number of its elements.

    Raises:
        ValueError: these are not the bytes of such a tensor.
    """
    if not isinstance(said, str):
        return said
    data = _bytes(said)
    numbers: Sequence[Any] = _numbers(data, dtype)
    if dtype.startswith("complex"):
        numbers = list(map(math.hypot, numbers[::2], numbers[1::2]))
    found: dict[str, Any] = {"n": count}
    if numbers:
        bad = any(n != n for n in numbers)
        extremes = (math.nan, math.nan, math.nan) if bad else (math.hypot(*numbers), min(numbers), max(numbers))
        for name, value in zip(("norm", "min", "max"), extremes, strict=True):
            found[name] = value + 0 if value - value == 0 else str(value)
    found["hash"] = f"{zlib.adler32(data):08x}"
    return found if len(numbers) == count else {**found, "sampled": len(numbers)}


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _numbers(data: bytes, dtype: str) -> tuple[Any, ...]:
    if dtype not in _FORMATS:
        raise ValueError(f"elements of type {dtype} are not known")
    form = _FORMATS[dtype]
    size = struct.calcsize(form)
    count = len(data) // size
    if len(data) % (2 * size if dtype.startswith("complex") else size):
        raise ValueError(f"{len(data)} bytes are no whole number of {dtype}")
    if dtype == "bfloat16":  # the upper half of a float32
        data = b"".join([b"\0\0" + data[at : at + 2] for at in range(0, len(data), 2)])
        form = "f"
    try:
        return struct.unpack(f"<{count}{form}", data)
    except struct.error as error:
        raise ValueError(str(error)) from error


def _shortened(numbers: Sequence[float]) -> list[float]:
    """Floats of 32 bits or less, each with 7 digits where that says it exactly, else with 9, which always does."""
    exact = array("f", numbers)
    short = [float(f"{number:.7g}") for number in numbers]
    rounded = array("f", short)
    if rounded == exact:
        return short
    return [
        few if again == number else float(f"{number:.9g}")
        for few, again, number in zip(short, rounded, exact, strict=True)
    ]
