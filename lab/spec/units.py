"""Durations and sizes as people write them, to seconds and bytes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from lab.errors import UsageError
from lab.words import clip

DURATIONS_ALLOWED = "a duration such as 500ms, 60s, 2m or 1h, or a plain number of seconds"
AGES_ALLOWED = "an age such as 30m, 12h, 7d or 4w"
SIZES_ALLOWED = "a size such as 100k, 512MB or 1GiB (k, M, G, T: powers of 1000; Ki, Mi, Gi, Ti: of 1024), or bytes"
RATES_ALLOWED = "a rate such as 500kbit, 100mbit or 2.5gbit: bits a second, powers of 1000"
SHARES_ALLOWED = "a share such as 5% or 0.05"

_SECONDS = {"": 1, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES: dict[str, float] = {"": 1, **{letter: 1000**power for power, letter in enumerate("kmgt", start=1)}}
_BYTES |= {f"{letter}i": 1024**power for power, letter in enumerate("kmgt", start=1)}
_BITS = {f"{letter}bit": 1000**power for power, letter in enumerate(("", "k", "m", "g"))}
_NUMBER = r"([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
_LONGEST = 64


def parse_duration(value: str | float) -> float:
    """The seconds that text such as `60s`, `500ms`, `2m` or `1h` means; a number without a unit is seconds."""
    return float(_parse(value, str, _SECONDS, DURATIONS_ALLOWED))


def parse_age(value: str) -> float:
    """The seconds that text such as `12h`, `7d` or `4w` means; a number without a unit is refused."""
    return float(_parse(value, str, _AGES, AGES_ALLOWED))


def parse_size(value: str | float) -> int:
    """The bytes that text such as `1GiB`, `512MB` or `100k` means, in any case; a number without a unit is bytes."""
    return round(_parse(value, lambda unit: unit.lower().removesuffix("b"), _BYTES, SIZES_ALLOWED))


def parse_rate(value: str | float) -> float:
    """The bits a second that text such as `100mbit` or `1.5 Gbit/s` means, in any case; they need a unit."""
    return float(_parse(value, lambda unit: unit.lower(), _BITS, RATES_ALLOWED))


def parse_share(value: str | float) -> float:
    """The part of the whole that text such as `5%` or `0.05` means."""
    text = str(value).strip()
    percent = text.endswith("%")
    return float(_parse(text.removesuffix("%"), str, {"": 0.01 if percent else 1}, SHARES_ALLOWED))


def _parse(value: str | float, fold: Callable[[str], str], units: Mapping[str, float], allowed: str) -> float:
    text = str(value).strip() if not isinstance(value, bool) else ""
    match = re.fullmatch(rf"{_NUMBER}[ \t]*([A-Za-z]*)", text) if len(text) <= _LONGEST else None
    if match is None or fold(match[2]) not in units:
        raise UsageError(f"found {clip(repr(value), _LONGEST)}; allowed: {allowed}")
    factor = units[fold(match[2])]
    number = int(match[1]) * factor if match[1].isdecimal() else float(match[1]) * factor
    if not math.isfinite(number):
        raise UsageError(f"found {clip(repr(value), _LONGEST)}, which is too large; allowed: {allowed}")
    return number
