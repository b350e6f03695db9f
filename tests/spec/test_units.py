"""Durations and sizes, to numbers and back."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.errors import UsageError
from lab.spec.kinds import DURATIONS_ALLOWED, SIZES_ALLOWED, parse_duration, parse_size
from tests.golden import golden


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60s", 60),
        ("500ms", 0.5),
        ("2m", 120),
        ("2 min", 120),
        ("1h", 3600),
        ("90", 90),
        ("1.5 h", 5400),
        (".5s", 0.5),
        ("1e3ms", 1),
        (" 3s ", 3),
        (7, 7),
        (0.25, 0.25),
    ],
)
def test_a_duration_is_read_in_seconds(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1GiB", 2**30),
        ("512MB", 512_000_000),
        ("100k", 100_000),
        ("100kB", 100_000),
        ("4Ki", 4096),
        ("1.5GiB", 3 * 2**29),
        ("2tib", 2**41),
        ("7 B", 7),
        (1024, 1024),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_a_size_is_read_in_bytes(text: str | float, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "s", "5x", "-1s", "1 2s", "1:30", "2d", "60S", "٣s", "inf", "nan", "1" * 65, True]
)
def test_what_is_no_duration_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(UsageError) as refusal:
        parse_duration(text)
    assert refusal.value.message.startswith("found ")
    assert refusal.value.message.endswith(f"; allowed: {DURATIONS_ALLOWED}")


@pytest.mark.parametrize("text", ["", "GiB", "1GiBB", "-1k", "1e", "1 PiB", "1,5G", float("inf"), False])
def test_what_is_no_size_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(UsageError) as refusal:
        parse_size(text)
    assert refusal.value.message.startswith("found ")
    assert refusal.value.message.endswith(f"; allowed: {SIZES_ALLOWED}")


def test_a_refusal_shows_what_was_found() -> None:
    with pytest.raises(UsageError, match=golden(1)):
        parse_duration("5 parsecs")


def test_a_number_beyond_every_float_is_too_large() -> None:
    with pytest.raises(UsageError, match=golden(1)):
        parse_duration("1e400s")
    with pytest.raises(UsageError, match=golden(2)):
        parse_size("1e400")


@given(st.text(max_size=80))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    for parse in (parse_duration, parse_size):
        with contextlib.suppress(UsageError):
            assert parse(text) >= 0
