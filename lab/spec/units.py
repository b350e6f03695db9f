"""Durations and sizes as people write them, to seconds and bytes."""

from __future__ import annotations

import math
import re

from lab.errors import UsageError
from lab.words import clip

DURATIONS_ALLOWED = "a duration such as 500ms, 60s, 2m or 1h, or a plain number of seconds"
SIZES_ALLOWED = "a size such as 100k, 512MB or 1GiB (k, M, G, T: powers of 1000; Ki, Mi, Gi, Ti: of 1024), or bytes"

_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES: dict[str, int] = {"": 1, **{letter: 1000**power for power, letter in enumerate("kmgt", start=1)}}
_BYTES |= {f"{letter}i": 1024**power for power, letter in enumerate("kmgt", start=1)}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)[ \t]*([A-Za-z]*)")
_LONGEST = 64


def parse_duration(value: str | float) -> float:
    """A duration in seconds.

    Args:
        value: text such as `60s`, `500ms`, `2m` or `1h`; a number, or text without a unit, is seconds.

    Returns:
        Seconds, finite and not negative.

    Raises:
        UsageError: it is no duration; the message says what was found and what is allowed.
    """
    number, unit = _split(value, DURATIONS_ALLOWED)
    if unit not in _SECONDS:
        raise UsageError(f"found {_shown(value)}; allowed: {DURATIONS_ALLOWED}")
    return _finite(float(number) * _SECONDS[unit], value, DURATIONS_ALLOWED)


def parse_size(value: str | float) -> int:
    """A size in bytes.

    Args:
        value: text such as `1GiB`, `512MB` or `100k`, upper or lower case; a number, or text without a unit, is bytes.
            k, M, G and T are powers of 1000 (with or without a B), Ki, Mi, Gi and Ti of 1024.

    Returns:
        Bytes, not negative; a fraction of a byte is rounded.

    Raises:
        UsageError: it is no size; the message says what was found and what is allowed.
    """
    number, unit = _split(value, SIZES_ALLOWED)
    factor = _BYTES.get(unit.lower().removesuffix("b"))
    if factor is None:
        raise UsageError(f"found {_shown(value)}; allowed: {SIZES_ALLOWED}")
    if number.isdecimal():
        return int(number) * factor
    return round(_finite(float(number) * factor, value, SIZES_ALLOWED))


def _split(value: str | float, allowed: str) -> tuple[str, str]:
    text = str(value).strip() if not isinstance(value, bool) else ""
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise UsageError(f"found {_shown(value)}; allowed: {allowed}")
    return match.group(1), match.group(2)


def _finite(number: float, value: object, allowed: str) -> float:
    if not math.isfinite(number):
        raise UsageError(f"found {_shown(value)}, which is too large; allowed: {allowed}")
    return number


def _shown(value: object) -> str:
    return clip(repr(value), _LONGEST)
