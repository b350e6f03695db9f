"""What ought to have come out, against a plain computation of the same with fractions and loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.features.pictures.model import picture_of
from lab.features.values.expected import is_expected_value, reduce_numbers
from tests.report.example_steps import one_step

RANKS = st.integers(1, 5)
INTS = st.integers(-(2**31), 2**31 - 1)
FLOATS = st.floats(-1e6, 1e6, width=32)


def exactly(red: str, values: Sequence[float]) -> Fraction:
    result = Fraction(values[0])
    for value in values[1:]:
        result = result * Fraction(value) if red == "PRODUCT" else result + Fraction(value)
    return result / len(values) if red == "AVG" else result


@given(st.lists(INTS, min_size=1, max_size=6), st.sampled_from(["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]))
def test_reductions_of_integers_are_those_of_64_bits(values: list[int], red: str) -> None:
    plain = values[0]
    for value in values[1:]:
        plain = {
            "SUM": plain + value, "PRODUCT": plain * value, "MIN": min(plain, value), "MAX": max(plain, value),
            "BAND": plain & value, "BOR": plain | value, "BXOR": plain ^ value,
        }[red]  # fmt: skip
    assert reduce_numbers(red, "int64", values) == ((plain + 2**63) % 2**64 - 2**63, 0.0)


@given(st.lists(FLOATS, min_size=1, max_size=6), st.sampled_from(["SUM", "AVG", "PRODUCT"]), st.randoms())
def test_float_reductions_are_right_in_any_order_of_adding(values: list[float], red: str, random: object) -> None:
    expected, tolerance = reduce_numbers(red, "float64", values)
    exact = exactly(red, values)
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    other = math.prod(shuffled) if red == "PRODUCT" else sum(shuffled) / (len(shuffled) if red == "AVG" else 1)

    assert abs(Fraction(expected.real) - exact) <= Fraction(tolerance) + Fraction(1, 2**1000)
    assert is_expected_value(other, expected, tolerance)


@pytest.mark.parametrize(
    ("red", "dtype", "values", "expected"),
    [
        ("SUM", "uint8", [200, 100], 44),
        ("SUM", "int8", [100, 100], -56),
        ("MAX", "float32", [1.0, math.nan], None),
        ("SUM", "bool", [True, True], True),
        ("PRODUCT", "bool", [True, False], False),
        ("SUM", "complex64", [1 + 2j, 3 - 1j], 4 + 1j),
        ("AVG", "int64", [1, 2], None),
        ("PREMUL_SUM", "float32", [1.0, 2.0], None),
        ("SUM", "float16", [60000.0, 60000.0], None),
        ("BAND", "float32", [1.0, 2.0], None),
        ("PRODUCT", "float32", [1e-30, 1e-30, 1e30], None),
        ("PRODUCT", "float32", [1e30, 1e30, 1e-30], None),
    ],
)
def test_corners(red: str, dtype: str, values: list[complex], expected: complex | None) -> None:
    assert reduce_numbers(red, dtype, values)[0] == expected


@pytest.mark.parametrize("actual", [0.0, 1e-40])
def test_what_is_too_small_for_its_dtype_may_have_become_0(actual: float) -> None:
    assert is_expected_value(actual, *reduce_numbers("PRODUCT", "float32", [1e-20, 1e-20]))
    assert is_expected_value(actual, *reduce_numbers("SUM", "float32", [6e-41, 4e-41]))
    assert not is_expected_value(1e-30, *reduce_numbers("PRODUCT", "float32", [1e-20, 1e-20]))


@pytest.mark.parametrize(
    ("actual", "expected", "tolerance", "same"),
    [
        ("nan", math.nan, 0.0, True), ("nan", 1.0, 9.0, False), (1.0, math.nan, 9.0, False),
        ("inf", math.inf, 0.0, True),
        ("-inf", math.inf, math.inf, False), (1.0, math.inf, math.inf, False), (1.5, 1.0, 0.4, False),
        (1.5, 1.0, 0.5, True), ([1, 2], 1 + 2j, 0.0, True), (True, 1, 0.0, True),
    ],
)  # fmt: skip
def test_a_value_agrees_or_not(actual: object, expected: complex, tolerance: float, same: bool) -> None:
    assert is_expected_value(actual, expected, tolerance) is same


@settings(deadline=None, max_examples=60)
@given(st.data(), RANKS, st.integers(1, 3))
def test_expected_outputs_equal_a_plain_computation(data: st.DataObject, world_size: int, size: int) -> None:
    """Inputs are drawn, outputs computed here by loops; the picture must find all of them right, and know them all."""
    ranks = range(world_size)
    root = data.draw(st.sampled_from(ranks))
    op = data.draw(st.sampled_from(sorted(RULES)))
    lists = op in ("scatter", "reduce_scatter", "all_to_all")
    length = size * world_size if op in ("reduce_scatter_tensor", "all_to_all_single") else size
    one = st.lists(INTS, min_size=length, max_size=length)
    given_ = [[data.draw(one) for _ in range(world_size if lists else 1)] for _ in ranks]
    fields = {"root": root} if op in ("broadcast", "scatter", "gather") else {"red": "SUM"}

    def before(rank: int) -> list[list[int]]:
        return given_[rank] if op != "scatter" or rank == root else []

    with TemporaryDirectory() as folder:
        step = one_step(
            Path(folder), op, before, lambda rank: RULES[op](given_, rank, root, size),
            world_size=world_size, dtype="int64", **fields,
        )  # fmt: skip
    blocks = [block for rank in picture_of(step).ranks for block in rank.after]

    assert [block.expected for block in blocks] == [block.values for block in blocks]
    assert picture_of(step).check == "right"


def _added(tensors: list[list[int]]) -> list[int]:
    return [sum(column) for column in zip(*tensors, strict=True)]


RULES = {
    "broadcast": lambda t, _, root, __: t[root],
    "all_reduce": lambda t, *_: [_added([own[0] for own in t])],
    "all_gather": lambda t, *_: [own[0] for own in t],
    "all_gather_into_tensor": lambda t, *_: [[value for own in t for value in own[0]]],
    "gather": lambda t, rank, root, _: [own[0] for own in t] if rank == root else [],
    "scatter": lambda t, rank, root, _: [t[root][rank]],
    "reduce_scatter": lambda t, rank, *_: [_added([own[rank] for own in t])],
    "reduce_scatter_tensor": lambda t, rank, _, n: [_added([own[0][rank * n : rank * n + n] for own in t])],
    "all_to_all": lambda t, rank, *_: [own[rank] for own in t],
    "all_to_all_single": lambda t, rank, _, n: [[v for own in t for v in own[0][rank * n : rank * n + n]]],
}
