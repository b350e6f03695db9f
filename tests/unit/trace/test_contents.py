"""The contents of tensors from their bytes, against what PyTorch makes of the same."""

from __future__ import annotations

import base64
import functools
import math
from typing import Any

import pytest
import torch

from lab.node.recorder import values
from lab.trace import contents

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8")


def written(tensor: torch.Tensor) -> str:
    """What the Python recorder keeps of a small tensor."""
    text = values.reader(tensor, whole=True)(tensor)
    assert text[:1] + text[-1:] == b'""'
    return text[1:-1].decode()


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS, "bool", "complex64", "complex128"])
def test_elements_are_those_of_the_tensor(name: str) -> None:
    dtype = getattr(torch, name)
    if name.startswith("complex"):
        tensor = torch.tensor([1 + 2j, -0.5j, 3e10], dtype=dtype)
        assert contents.elements(written(tensor), name) == [[1.0, 2.0], [0.0, -0.5], [3e10, 0.0]]
        return
    plain: list[Any] = [True, False] if name == "bool" else [0, 1, 7, 100] if name in INTEGERS else [0.5, -2.0, 1e4]
    if name in INTEGERS:
        plain += [torch.iinfo(dtype).min, torch.iinfo(dtype).max]
    found = contents.elements(written(torch.tensor(plain, dtype=dtype)), name)
    expected = [v if name in INTEGERS else torch.tensor(v, dtype=dtype).item() for v in plain]
    assert found == expected
    assert [type(value) for value in found] == [type(value) for value in expected]


@pytest.mark.parametrize("name", FLOATS)
def test_floats_are_told_with_as_few_digits_as_say_them(name: str) -> None:
    dtype = getattr(torch, name)
    tensor = torch.tensor([0.1, math.pi, 1 / 3, math.nan, math.inf, -math.inf, -0.0], dtype=dtype)
    *numbers, nan, most, least, nothing = contents.elements(written(tensor), name)
    assert torch.equal(torch.tensor(numbers, dtype=dtype), tensor[:3])
    assert (nan, most, least) == ("nan", "inf", "-inf")
    assert math.copysign(1, nothing) == -1
    if name in ("float64", "float32"):
        assert numbers[0] == 0.1


def test_what_lies_scattered_is_read_in_order() -> None:
    numbers = torch.arange(6).reshape(2, 3)
    assert contents.elements(written(numbers.t()), "int64") == [0, 3, 1, 4, 2, 5]
    assert contents.elements(written(numbers[:, 1]), "int64") == [1, 4]


def test_of_nothing_there_is_nothing() -> None:
    assert contents.elements(written(torch.zeros(0)), "float32") == []
    assert contents.summary(written(torch.zeros(0)), "float32", 0) == {"n": 0, "hash": "00000001"}


@pytest.mark.parametrize(
    ("text", "dtype", "reason"),
    [
        ("AAAA", "float32", "3 bytes are no whole number of float32"),
        ("AAAAAA==", "float3", "elements of type float3 are not known"),
        ("A", "uint8", "."),
        ("!!!!", "uint8", "."),
        (base64.b64encode(bytes(12)).decode(), "complex64", "12 bytes are no whole number of complex64"),
    ],
)
def test_what_is_no_tensor_is_refused(text: str, dtype: str, reason: str) -> None:
    for read in (contents.elements, functools.partial(contents.summary, count=3)):
        with pytest.raises(ValueError, match=reason):
            read(text, dtype)
