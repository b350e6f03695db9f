"""Format numbers, ranks, and lists for the terminal, for pages (`words.js` has the same rules), and for exports."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Iterable, Sequence
from itertools import groupby
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def group_pairs(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key, both in the order of first occurrence."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


NONE = "–"
"""Shown for a missing number."""
_PREFIXES = ("", "k", "M", "G", "T", "P")
_MOST_SPANS = 8
"""Most spans of ranks in a sentence; 16 ranks cannot have more."""
_ONE_RANK = r"(?s)rank (\d+)(\W.*)"
_MOST_ALIKE = 5
"""From this many ranks on, equal sentences about single ranks become one sentence."""
_LONGEST_NUMBER = 10
"""Most digits of the number in a node's name."""
_LONGEST_S = 1e15
"""No duration is longer, but a value can be infinite or NaN."""


def format_bytes(size: float | None) -> str:
    """Format a size with three digits: `512 B`, `1.5 kB`. Powers of 1000, as networks, disks, and nccl-tests use."""
    return NONE if size is None else _scaled(size, "B")


def format_rate(bytes_per_s: float | None) -> str:
    """Format a rate: `1.2 GB/s`."""
    return NONE if bytes_per_s is None else _scaled(bytes_per_s, "B/s")


def format_bit_rate(bits_per_s: float | None) -> str:
    """Format the rate of a link in bits, as vendors do: `100 Mbit/s`."""
    return NONE if bits_per_s is None else _scaled(bits_per_s, "bit/s")


def format_limit(size: int) -> str:
    """Format a limit as the user wrote it: `1 GiB`, `700 MiB`, or `512 MB` if it is not a whole number of MiB."""
    mebibytes, rest = divmod(size, 2**20)
    if rest:
        return format_bytes(size)
    return f"{mebibytes / 1024:g} GiB" if mebibytes >= 1024 else f"{mebibytes} MiB"


def format_duration(seconds: float | None) -> str:
    """Format a duration with three digits: `12 µs`, `65.4 ms`, `3.25 s`, `2m 05s`, `1h 02m`."""
    if seconds is None:
        return NONE
    if not abs(seconds) < _LONGEST_S:
        return f"{seconds} s"
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    microseconds = round(seconds * 1e9) / 1e3
    for unit, size, limit in (("µs", 1.0, 999.5), ("ms", 1e3, 999.5), ("s", 1e6, 59.95)):
        if microseconds / size < limit:
            number = _three_digits(microseconds / size)
            return f"{number} {unit}" if number != "0" else "0 s"
    minutes, rest = divmod(math.floor(seconds + 0.5), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s" if rest else f"{minutes}m"
    hours, minutes = divmod(math.floor(seconds / 60 + 0.5), 60)
    return f"{hours}h {minutes:02d}m" if minutes else f"{hours}h"


def format_moment(seconds: float, distance_s: float) -> str:
    """Format a moment on an axis with the digits that the distance between ticks needs: `0`, `20 ms`, `1.5 s`."""
    if seconds == 0:
        return "0"
    unit, size = ("s", 1.0) if distance_s >= 0.1 else ("ms", 1e-3) if distance_s >= 1e-4 else ("µs", 1e-6)
    digits = max(0, -math.floor(math.log10(distance_s / size) + 1e-9))
    return f"{seconds / size:.{min(digits, 3)}f} {unit}"


def _scaled(number: float, unit: str) -> str:
    if number < 0:
        return f"-{_scaled(-number, unit)}"
    power = 0
    while number >= 999.5 and power < len(_PREFIXES) - 1:
        number, power = number / 1000, power + 1
    return f"{_three_digits(number)} {_PREFIXES[power]}{unit}"


def _three_digits(number: float) -> str:
    """Round halves up, as JavaScript does; `%.3g` rounds them to even digits."""
    scale = 100 if number < 10 else 10 if number < 100 else 1
    return f"{math.floor(number * scale + 0.5) / scale:.10g}"


def clip_end(text: str, longest: int) -> str:
    """Cut text at the end, with an ellipsis, if it is longer."""
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"


def clip_middle(text: str, longest: int) -> str:
    """Cut text in the middle if it is longer, because errors often name the important thing last."""
    if len(text) <= longest:
        return text
    last = longest // 3
    return f"{text[: longest - last - 3].rstrip()} … {text[-last:].lstrip()}"


def format_value(value: Any, longest: int) -> str:
    """Format a value of a record as one line of JSON, cut if it is longer."""
    return clip_end(json.dumps(value, ensure_ascii=False, default=str), longest)


def format_count(count: int, singular: str, plural: str = "") -> str:
    """Format a number with its noun: `1 call`, `3 calls`, `1,200 calls`."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def name_link(one: str, other: str) -> str:
    """Name the link between two nodes in sorted order: `node0 - node2`."""
    return " - ".join(sorted((one, other)))


def name_ranks(ranks: Iterable[int]) -> str:
    """Name ranks: `rank 3`, `ranks 0, 1, and 5`, `ranks 0-3 and 7`, `ranks 0, 8, …, 248 (every 8th)`."""
    ranks = sorted(ranks)
    return f"rank{'s' if len(ranks) > 1 else ''} {_few_spans(ranks)}" if ranks else "no rank"


def _few_spans(numbers: list[int]) -> str:
    spans = rank_spans(numbers)
    if len(spans) <= _MOST_SPANS:
        return join_words(spans)
    distance = numbers[1] - numbers[0]
    if numbers == [*range(numbers[0], numbers[-1] + 1, distance)]:
        return f"{numbers[0]}, {numbers[1]}, …, {numbers[-1]} (every {format_ordinal(distance)})"
    return join_words(_first_spans(numbers))


def _first_spans(numbers: Sequence[int], prefix: str = "") -> list[str]:
    """Return the spans of ranks; if there are many, the first ones and the number of the other ranks."""
    spans = rank_spans(numbers, prefix)
    if len(spans) <= _MOST_SPANS:
        return spans
    shown = spans[: _MOST_SPANS - 1]
    until = int(shown[-1].rpartition("-")[2].removeprefix(prefix))
    return [*shown, f"{sum(number > until for number in numbers):,} more"]


def name_nodes(names: Iterable[str]) -> str:
    """Name nodes: `node0, node2, and other`; combine neighbours: `node0-node255`."""
    numbered: dict[str, list[int]] = {}
    others = []
    for name in dict.fromkeys(names):
        prefix = name.rstrip("0123456789")
        number = name[len(prefix) :]
        if number and len(number) < _LONGEST_NUMBER and str(int(number)) == number:
            numbered.setdefault(prefix, []).append(int(number))
        else:
            others.append(name)
    return join_words([*(span for prefix, of in numbered.items() for span in _first_spans(of, prefix)), *others])


def merge_ranks(sentences: Iterable[str]) -> list[str]:
    """Merge equal sentences about many ranks at the position of the first: `ranks 0-6: no note x`."""
    ranks: dict[str, list[str]] = {}
    matches = [(sentence, re.match(_ONE_RANK, sentence)) for sentence in sentences]
    for _, of_rank in matches:
        if of_rank is not None:
            ranks.setdefault(of_rank[2], []).append(of_rank[1])
    names = {text: name_ranks(map(int, of)) for text, of in ranks.items() if len(of) >= _MOST_ALIKE}
    merged: dict[str, None] = {}
    for sentence, of_rank in matches:
        if of_rank is not None and of_rank[2] in names:
            rest = f" have{of_rank[2][4:]}" if of_rank[2].startswith(" has ") else of_rank[2]
            sentence = f"{names[of_rank[2]]}{rest}"
        merged[sentence] = None
    return list(merged)


def name_attempts(numbers: Iterable[int]) -> str:
    """Name attempts: `attempt 2`, `attempts 0-2`."""
    numbers = sorted(numbers)
    return f"attempt{'s' if len(numbers) > 1 else ''} {join_words(rank_spans(numbers))}"


def rank_spans(ranks: Iterable[int], prefix: str = "") -> list[str]:
    """Combine neighbours: `0-3`, `7`, or with the prefix `r`: `r0-r3`, `r7`. Two neighbours stay separate."""
    spans = []
    for _, neighbours in groupby(enumerate(sorted(ranks)), key=lambda pair: pair[1] - pair[0]):
        span = [rank for _, rank in neighbours]
        spans += [f"{prefix}{span[0]}-{prefix}{span[-1]}"] if len(span) > 2 else [f"{prefix}{rank}" for rank in span]
    return spans


def join_words(words: Iterable[str]) -> str:
    """Join distinct words in their order: `a`, `a and b`, `a, b, and c`."""
    words = list(dict.fromkeys(word for word in words if word))
    return " and ".join(words) if len(words) < 3 else f"{', '.join(words[:-1])}, and {words[-1]}"


def format_ordinal(number: int) -> str:
    """Format an ordinal: `1st`, `2nd`, `11th`."""
    last = 0 if number % 100 in (11, 12, 13) else number % 10
    return f"{number}{({1: 'st', 2: 'nd', 3: 'rd'}).get(last, 'th')}"


def was_or_were(subjects: Iterable[object]) -> str:
    """Return `was` for one subject, else `were`."""
    return "was" if len(list(subjects)) == 1 else "were"


def capitalize_first(sentence: str) -> str:
    """Capitalize the first letter of a sentence."""
    return sentence[:1].upper() + sentence[1:]
