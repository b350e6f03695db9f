"""Summaries of tensors, against what PyTorch computes of the same numbers."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from lab.node.recorder import values
from lab.trace import contents

TYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)
COUNTS = (1, 2, 165, 256, 257, 1000, 4096)


def summary(tensor: torch.Tensor) -> dict[str, Any]:
    """What a reader sees of a tensor: of a small one it is the reader who computes."""
    found = json.loads(values.reader(tensor, whole=False)(tensor))
    small = isinstance(found, str)
    assert small == (0 < tensor.numel() <= 256 or tensor.numel() > 4096)
    return contents.summary(found, str(tensor.dtype).removeprefix("torch."), tensor.numel()) if small else found


def numbers(dtype: torch.dtype, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count)
    if dtype.is_floating_point:
        return torch.randn(count, generator=generator, dtype=torch.float64).to(dtype)
    lowest = 0 if dtype in (torch.uint8, torch.bool) else -100
    return torch.randint(lowest, 2 if dtype is torch.bool else 100, (count,), generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("count", COUNTS)
def test_a_summary_is_what_pytorch_computes(dtype: torch.dtype, count: int) -> None:
    tensor = numbers(dtype, count)
    found, wide = summary(tensor), tensor.double()
    assert found["n"] == count
    assert found["norm"] == pytest.approx(wide.norm().item(), rel=1e-5)
    assert found["min"] == pytest.approx(wide.min().item(), rel=1e-8)  # 9 digits tell every float32 from all others
    assert found["max"] == pytest.approx(wide.max().item(), rel=1e-8)
    assert "sampled" not in found


@pytest.mark.parametrize("count", [100, 1000])
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
def test_numbers_that_are_not_finite_tiny_or_huge(count: int, special: list[float], expected: tuple[Any, ...]) -> None:
    tensor = torch.zeros(count)
    tensor[count // 2 : count // 2 + len(special)] = torch.tensor(special)
    found = summary(tensor)
    assert (found["norm"], found["min"], found["max"]) == expected


@pytest.mark.parametrize("count", [100, 1000])
def test_numbers_that_are_not_numbers_beside_infinite_ones(count: int) -> None:
    tensor = torch.zeros(count)
    tensor[3], tensor[5] = math.inf, math.nan
    found = summary(tensor)
    assert (found["min"], found["max"]) == ("nan", "nan")


def test_of_complex_numbers_the_absolute_values_are_compared() -> None:
    found = summary(torch.full((200,), 3 + 4j))
    assert (found["min"], found["max"], found["norm"]) == (5.0, 5.0, pytest.approx(5 * math.sqrt(200)))


def test_of_no_numbers_there_is_only_a_hash() -> None:
    assert summary(torch.zeros(0, 3)) == {"n": 0, "hash": "00000001"}


@pytest.mark.parametrize("count", [4097, 10_000, 1 << 20])
def test_a_sample_is_spread_over_the_whole_tensor(count: int) -> None:
    tensor = torch.arange(count, dtype=torch.float64)
    found = summary(tensor)
    assert (found["n"], found["sampled"]) == (count, 256)
    assert found["min"] == 0
    assert count * 0.96 <= found["max"] < count
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
    parameter = torch.nn.Parameter(tensor.clone())
    assert summary(parameter) == summary(tensor)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("count", [2, 128, 129, 256, 257, 4097])
def test_the_contents_of_one_tensor_are_as_those_of_several(dtype: torch.dtype, count: int) -> None:
    tensor = numbers(dtype, 2 * count)[::2]
    for one in (tensor, tensor.contiguous()):
        for limit, kept, name in ((count, True, b"w"), (count - 1, False, b"s")):
            said = values.reader(one, whole=kept)(one)
            assert values.contents((one,), limit, b"w", b"s")((one,)) == b',"%b":[%b]' % (name, said)
            none = torch.zeros(0, dtype=dtype)
            several = values.contents((one, none), limit, b"w", b"s")((one, none))
            assert several.startswith(b',"%b":[%b,' % (name, said))
    assert values.contents((tensor,), 0, b"w", b"s")((tensor,)) == b""
