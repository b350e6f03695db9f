"""What is kept of tensors: their elements, or a summary against what PyTorch computes of the same numbers."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.late import python_group as values
from tests.late import torch

FLOATS = ("float64", "float32", "float16", "bfloat16")
TYPES = (*FLOATS, "int64", "int32", "int16", "int8", "uint8", "bool")
COUNTS = (1, 2, 165, 1000, 4096)


@pytest.fixture
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """The type of that name."""
    return getattr(torch, request.param)


def elements(tensor: torch.Tensor) -> Any:
    """What a reader finds where all elements are kept."""
    return json.loads(json.dumps(values.list_elements(tensor), allow_nan=False))


def summary(tensor: torch.Tensor) -> Any:
    """What a reader finds where they are too many."""
    return json.loads(json.dumps(values.summarize_tensor(tensor), allow_nan=False))


def numbers(dtype: torch.dtype, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count)
    if dtype.is_floating_point:
        return torch.randn(count, generator=generator, dtype=torch.float64).to(dtype)
    lowest = 0 if dtype in (torch.uint8, torch.bool) else -100
    return torch.randint(lowest, 2 if dtype is torch.bool else 100, (count,), generator=generator).to(dtype)


# -- elements


@pytest.mark.parametrize("dtype", TYPES, indirect=True)
def test_elements_are_those_of_the_tensor(dtype: torch.dtype) -> None:
    plain: list[Any] = (
        [0.5, -2.0, 1e4] if dtype.is_floating_point else [True, False] if dtype is torch.bool else [0, 1, 100]
    )
    if not dtype.is_floating_point and dtype is not torch.bool:
        plain += [torch.iinfo(dtype).min, torch.iinfo(dtype).max]
    tensor = torch.tensor(plain, dtype=dtype)
    found = elements(tensor)
    assert torch.equal(torch.tensor(found, dtype=dtype), tensor)
    assert [type(value) for value in found] == [type(value) for value in plain]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"], indirect=True)
def test_complex_numbers_are_pairs(dtype: torch.dtype) -> None:
    tensor = torch.tensor([1 + 2j, -0.5j, complex(3e10, math.inf)], dtype=dtype)
    assert elements(tensor) == [[1.0, 2.0], [0.0, -0.5], [3e10, "inf"]]


@pytest.mark.parametrize("dtype", FLOATS, indirect=True)
def test_floats_are_told_with_as_few_digits_as_say_them(dtype: torch.dtype) -> None:
    tensor = torch.tensor([0.1, math.pi, 1 / 3, math.nan, math.inf, -math.inf, -0.0], dtype=dtype)
    *found, nan, most, least, nothing = elements(tensor)
    assert torch.equal(torch.tensor(found, dtype=dtype), tensor[:3])
    assert (nan, most, least) == ("nan", "inf", "-inf")
    assert math.copysign(1, nothing) == -1
    if dtype in (torch.float64, torch.float32):
        assert found[0] == 0.1


def test_every_float_of_32_bits_is_told_exactly() -> None:
    tensor = torch.cat([numbers(torch.float32, 1000) * 10.0**power for power in range(-44, 38, 4)])
    assert torch.equal(torch.tensor(elements(tensor)), tensor)


def test_what_lies_scattered_is_read_in_order() -> None:
    tensor = torch.arange(6).reshape(2, 3)
    assert elements(tensor.t()) == [0, 3, 1, 4, 2, 5]
    assert elements(tensor[:, 1]) == [1, 4]


def test_of_nothing_there_is_nothing() -> None:
    assert elements(torch.zeros(0)) == []
    assert summary(torch.zeros(0, 3)) == {"n": 0, "hash": "00000001"}


# -- summaries


@pytest.mark.parametrize("dtype", TYPES, indirect=True)
@pytest.mark.parametrize("count", COUNTS)
def test_a_summary_is_what_pytorch_computes(dtype: torch.dtype, count: int) -> None:
    tensor = numbers(dtype, count)
    found = summary(tensor)
    assert found["n"] == count
    assert found["norm"] == pytest.approx(tensor.double().norm().item())
    assert torch.equal(torch.tensor([found["min"], found["max"]], dtype=dtype), torch.stack(tensor.aminmax()))
    assert "sampled" not in found


@pytest.mark.parametrize(
    ("special", "expected"),
    [
        ([math.nan], ("nan", "nan", "nan")),
        ([math.inf], ("inf", 0.0, "inf")),
        ([-math.inf], ("inf", "-inf", 0.0)),
        ([math.inf, -math.inf], ("inf", "-inf", "inf")),
        ([1e-30], (pytest.approx(1e-30), 0.0, pytest.approx(1e-30))),
        ([-1e30, 0.0], (pytest.approx(1e30), pytest.approx(-1e30), 0.0)),
        ([], (0.0, 0.0, 0.0)),
    ],
)
def test_numbers_that_are_not_finite_tiny_or_huge(special: list[float], expected: tuple[Any, ...]) -> None:
    tensor = torch.zeros(1000)
    tensor[500 : 500 + len(special)] = torch.tensor(special)
    found = summary(tensor)
    assert (found["norm"], found["min"], found["max"]) == expected


def test_numbers_that_are_not_numbers_beside_infinite_ones() -> None:
    tensor = torch.zeros(1000)
    tensor[3], tensor[5] = math.inf, math.nan
    found = summary(tensor)
    assert (found["min"], found["max"]) == ("nan", "nan")


def test_of_complex_numbers_the_absolute_values_are_compared() -> None:
    found = summary(torch.full((200,), 3 + 4j))
    assert (found["min"], found["max"], found["norm"]) == (5.0, 5.0, pytest.approx(5 * math.sqrt(200)))


@pytest.mark.parametrize("count", [4097, 10_000, 1 << 20])
def test_a_sample_is_spread_over_the_whole_tensor(count: int) -> None:
    tensor = torch.arange(count, dtype=torch.float64)
    found = summary(tensor)
    assert (found["n"], found["sampled"]) == (count, 256)
    assert found["min"] == 0
    assert count * 0.98 <= found["max"] < count
    changed = tensor.clone()
    changed[0] = -1
    assert summary(changed)["hash"] != found["hash"]


def test_the_order_and_every_element_count() -> None:
    tensor = numbers(torch.float32, 1000)
    hashes = {summary(tensor)["hash"], summary(tensor.flip(0))["hash"]}
    for place in range(0, 1000, 100):
        other = tensor.clone()
        other[place] += 1
        hashes.add(summary(other)["hash"])
    assert len(hashes) == 12


def test_where_the_elements_lie_does_not_count() -> None:
    tensor = numbers(torch.float32, 5000).reshape(50, 100)
    assert summary(tensor.t()) == summary(tensor.t().contiguous())
    assert summary(tensor[:, 0]) == summary(tensor[:, 0].clone())
    parameter = torch.nn.Parameter(tensor.clone())
    assert summary(parameter) == summary(tensor)


# -- one side of a call


def test_elements_are_kept_up_to_the_limit_of_all_tensors_together() -> None:
    pair = (torch.ones(2), torch.zeros(1))
    assert values.describe_contents("i", pair, 3) == {"iv": [[1.0, 1.0], [0.0]]}
    assert values.describe_contents("o", pair, 2) == {"os": [values.summarize_tensor(tensor) for tensor in pair]}
    assert values.describe_contents("i", pair, 0) == {}


def test_what_cannot_be_read_is_left_out() -> None:
    sparse = torch.sparse_coo_tensor([[0]], [1.0], (2,), check_invariants=True)
    elsewhere = torch.ones(2, device="meta")
    assert values.describe_contents("i", (sparse, elsewhere, torch.ones(1)), 128) == {"iv": [None, None, [1.0]]}
    assert values.describe_contents("i", (sparse, elsewhere), 128) == {}
    assert values.describe_contents("i", (torch.ones(2, dtype=torch.complex64).conj(),), 128) == {}
