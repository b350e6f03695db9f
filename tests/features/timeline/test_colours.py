"""Colours of ranks and operations: strong enough on every background, and never taken for one another."""

from __future__ import annotations

import re
from itertools import combinations

import pytest

from lab.features.timeline.svg import RANK_COLOURS, compute_luminance, operation_tones, rank_colour
from lab.operations import OPERATIONS, get_operation

pytestmark = pytest.mark.unit
LIGHT, DARK = ("#ffffff", "#fbfbfa"), ("#131518", "#1a1d21")
LANES = {"light": "#e9eaec", "dark": "#2a2e34"}
"""Behind the bars of the timeline."""
ENOUGH_CONTRAST = 3.0
"""WCAG 2.2, 1.4.11, of graphics."""
MATRICES = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "no blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}
"""What people see who lack a kind of cones, in linear RGB: Machado, Oliveira and Fernandes 2009."""
Lab = tuple[float, float, float]


def contrast(one: str, other: str) -> float:
    """As WCAG defines it."""
    least, most = sorted((compute_luminance(one), compute_luminance(other)))
    return (most + 0.05) / (least + 0.05)


def times(matrix: tuple[tuple[float, ...], ...], vector: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)


def seen(colour: str, eyes: str) -> Lab:
    """A colour in Oklab, as these eyes see it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = tuple(part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    linear = tuple(min(1.0, max(0.0, part)) for part in times(MATRICES[eyes], linear))
    cones = times(
        (
            (0.41222147, 0.53633254, 0.05144599),
            (0.2119035, 0.68069955, 0.10739696),
            (0.08830246, 0.28171884, 0.6299787),
        ),
        linear,
    )
    roots = tuple(part ** (1 / 3) for part in cones)
    return times(
        (
            (0.21045426, 0.79361779, -0.00407205),
            (1.9779985, -2.42859221, 0.45059371),
            (0.02590404, 0.78277177, -0.80867577),
        ),
        roots,
    )  # type: ignore[return-value]


def distance(one: str, other: str, eyes: str) -> float:
    """In hundredths of Oklab, where about 2 can just be told apart."""
    return 100 * sum((a - b) ** 2 for a, b in zip(seen(one, eyes), seen(other, eyes), strict=True)) ** 0.5


def tones() -> dict[str, tuple[str, str]]:
    """By operation: its colours on light and on dark pages."""
    found = {name: re.findall(r"#[0-9a-f]{6}", operation_tones(op)) for name, op in OPERATIONS.items()}
    return {name: (light, dark) for name, (light, dark) in found.items()}


@pytest.mark.parametrize("world_size", [12, 13, 48])
def test_ranks_show_on_light_and_on_dark_pages(world_size: int) -> None:
    for rank in range(world_size):
        colour = rank_colour(rank, world_size)
        assert min(contrast(colour, page) for page in (*LIGHT, *DARK)) >= ENOUGH_CONTRAST, (rank, colour)


def test_operations_show_on_their_pages_and_lanes() -> None:
    for name, (light, dark) in tones().items():
        assert min(contrast(light, page) for page in (*LIGHT, LANES["light"])) >= ENOUGH_CONTRAST, name
        assert min(contrast(dark, page) for page in (*DARK, LANES["dark"])) >= ENOUGH_CONTRAST, name


@pytest.mark.parametrize("eyes", MATRICES)
@pytest.mark.parametrize("page", [0, 1])
def test_no_rank_is_taken_for_an_operation(eyes: str, page: int) -> None:
    for name, of in tones().items():
        for colour in RANK_COLOURS:
            assert distance(of[page], colour, eyes) >= 5, (name, colour)


@pytest.mark.parametrize("eyes", MATRICES)
def test_the_first_ranks_differ_clearly_and_all_differ(eyes: str) -> None:
    assert min(distance(*pair, eyes) for pair in combinations(RANK_COLOURS[:6], 2)) >= 7
    assert min(distance(*pair, eyes) for pair in combinations(RANK_COLOURS, 2)) >= 3.5


@pytest.mark.parametrize("eyes", MATRICES)
@pytest.mark.parametrize("page", [0, 1])
def test_operations_of_different_kinds_differ(eyes: str, page: int) -> None:
    kinds = ("broadcast", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", "send")
    assert min(distance(tones()[a][page], tones()[b][page], eyes) for a, b in combinations(kinds, 2)) >= 4


def test_an_operation_that_is_not_in_the_table_has_a_colour_too() -> None:
    assert operation_tones(get_operation("all_to_some")) == operation_tones(get_operation("barrier"))
