"""How numbers, ranks and lists are written."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.spec.kinds import parse_duration, parse_size
from lab.words import (
    clip_end,
    format_bytes,
    format_count,
    format_duration,
    format_limit,
    format_moment,
    format_rate,
    format_value,
    join_words,
    name_nodes,
    name_ranks,
    rank_spans,
)
from tests.golden import golden


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0 s"),
        (1e-12, "0 s"),
        (2.5e-7, "0.25 µs"),
        (1.2e-5, "12 µs"),
        (0.0654, "65.4 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1 s"),
        (3.25, "3.25 s"),
        (59.96, "1m"),
        (125, "2m 05s"),
        (3599.7, "1h"),
        (3720, "1h 02m"),
        (-2, "-2 s"),
        (math.inf, "inf s"),
    ],
)
def test_a_duration_is_written_for_people(seconds: float | None, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "–"),
        (0, "0 B"),
        (512, "512 B"),
        (1000, "1 kB"),
        (4096, "4.1 kB"),
        (10_250, "10.3 kB"),
        (999_499, "999 kB"),
        (999_500, "1 MB"),
        (1_000_000, "1 MB"),
        (2**30, "1.07 GB"),
        (5000 * 10**15, "5000 PB"),
        (-2048, "-2.05 kB"),
    ],
)
def test_a_size_is_written_in_powers_of_1000(size: int | None, text: str) -> None:
    assert format_bytes(size) == text


def test_a_rate_is_written_as_a_size_per_second() -> None:
    assert [format_rate(rate) for rate in (None, 0, 999.6, 1.234e9)] == ["–", "0 B/s", "1 kB/s", "1.23 GB/s"]


@pytest.mark.parametrize(
    ("size", "text"),
    [(2**30, "1 GiB"), (3 * 2**29, "1.5 GiB"), (700 * 2**20, "700 MiB"), (512_000_000, "512 MB"), (1000, "1 kB")],
)
def test_a_limit_is_written_as_it_was_given(size: int, text: str) -> None:
    assert format_limit(size) == text
    assert parse_size(format_limit(size)) == size


@pytest.mark.parametrize(
    ("seconds", "distance_s", "text"),
    [(0, 1, "0"), (2.5, 0.5, "2.5 s"), (0.02, 0.01, "20 ms"), (0.0125, 0.0005, "12.5 ms"), (3e-5, 1e-5, "30 µs")],
)
def test_a_moment_has_the_digits_that_the_distance_of_two_ticks_needs(
    seconds: float, distance_s: float, text: str
) -> None:
    assert format_moment(seconds, distance_s) == text


@given(st.integers(min_value=0, max_value=2**49))
def test_a_written_size_reads_as_nearly_the_same(size: int) -> None:
    assert parse_size(format_bytes(size)) == pytest.approx(size, rel=0.01)


@given(st.floats(min_value=1e-3, max_value=59.9))
def test_a_written_short_duration_reads_as_nearly_the_same(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=0.01)


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], "no rank"),
        ([3], "rank 3"),
        ([2, 0], "ranks 0 and 2"),
        ([0, 1], "ranks 0 and 1"),
        ([0, 1, 5], "ranks 0, 1, and 5"),
        (range(8), "ranks 0-7"),
        ([0, 1, 2, 3, 7], "ranks 0-3 and 7"),
        ([0, 1, 2, 5, 7, 8, 9], "ranks 0-2, 5, and 7-9"),
    ],
)
def test_ranks_are_named_shortly(ranks: list[int], text: str) -> None:
    assert name_ranks(ranks) == text


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ({*range(256)} - {127}, "ranks 0-126 and 128-255"),
        (range(0, 16, 2), "ranks 0, 2, 4, 6, 8, 10, 12, and 14"),
        (range(0, 256, 2), "ranks 0, 2, …, 254 (every 2nd)"),
        (range(3, 256, 8), "ranks 3, 11, …, 251 (every 8th)"),
        ([*range(0, 100, 5), 255], "ranks 0, 5, 10, 15, 20, 25, 30, and 14 more"),
        ([0, 5, 10, 15, 20, 25, *range(40, 60), 70, 255], "ranks 0, 5, 10, 15, 20, 25, 40-59, and 2 more"),
    ],
)
def test_many_ranks_take_no_more_room_than_a_few(ranks: Iterable[int], text: str) -> None:
    assert name_ranks(ranks) == text


def test_nodes_are_named_like_ranks_by_their_numbers() -> None:
    assert name_nodes(f"node{number}" for number in range(256)) == "node0-node255"
    assert name_nodes(["node0", "node1", "node3", "other", "a-07"]) == golden(1)
    assert name_nodes([]) == ""
    odd = [f"node{number}" for number in range(1, 255, 2)]
    assert name_nodes(odd) == golden(2)


def test_spans_of_ranks_may_carry_a_letter() -> None:
    assert rank_spans([4, 0, 1, 2], "r") == ["r0-r2", "r4"]


def test_a_long_text_is_cut_off_within_its_limit() -> None:
    assert clip_end("abcdef", 6) == "abcdef"
    assert clip_end("abcdefg", 6) == "abcde…"
    assert clip_end("abcd efg", 6) == "abcd…"
    assert format_value({"é": [1.0, None]}, 40) == '{"é": [1.0, null]}'


def test_things_are_counted_and_listed() -> None:
    assert [format_count(1, "rank"), format_count(1200, "call"), format_count(2, "process", "processes")] == [
        "1 rank",
        "1,200 calls",
        "2 processes",
    ]
    assert [join_words(["a"]), join_words(["a", "b", "a"]), join_words("abc"), join_words([])] == [
        "a",
        "a and b",
        golden(1),
        "",
    ]
