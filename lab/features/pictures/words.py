"""Short words in pictures: numbers, ranks, shapes, labels, and which of many are shown."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import copysign
from operator import itemgetter
from typing import Any

from lab.operations import reduction
from lab.trace.expected import Part
from lab.words import rank_spans

ELLIPSIS = "…"
_ALL_BUT_ZERO = 1e-20
"""Numbers below it are shown, few as they are: they are on their way to zero."""


def plain_number(value: Any) -> Any:
    """A number as JSON can say it, and as values are recorded."""
    if isinstance(value, complex):
        return [plain_number(value.real), plain_number(value.imag)]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def typed_value(value: Any, dtype: str) -> Any:
    """A recorded value as its dtype has it: JSON may write 2.0 as 2, and True as 1."""
    if isinstance(value, (list, tuple)):
        return [typed_value(part, "float32") for part in value]
    if isinstance(value, int) and dtype.startswith(("float", "bfloat")):
        return float(value)
    return bool(value) if dtype == "bool" and value is not None else value


def number_text(value: Any, digits: int = 4) -> str:
    """A recorded value in so many digits: `0.25`, `3.0`, `1.5e+06`, `True`, `1+2j`."""
    if value is None:
        return "?"
    if isinstance(value, (list, tuple)):
        imaginary = number_text(value[1], digits)
        return f"{number_text(value[0], digits)}{'' if imaginary.startswith('-') else '+'}{imaginary}j"
    if not isinstance(value, float):
        return str(value)
    text = f"{value:.{digits}g}"
    return text if any(sign in text for sign in ".en") else f"{text}.0"


def exact_text(value: Any) -> str:
    """A recorded value with all its digits."""
    return repr(value) if isinstance(value, float) else number_text(value, 17)


def texts_that_differ(one: Any, other: Any) -> tuple[str, str]:
    """Two values with as many digits as it takes to tell them apart."""
    texts = [(number_text(one, digits), number_text(other, digits)) for digits in (4, 7, 10, 17)]
    return next((pair for pair in texts if pair[0] != pair[1]), texts[-1])


def label_text(part: Part, reduce_op: str) -> str:
    """Where a part comes from or goes to, in short: `r2`, `Σ r0-r3`, `→r2`; `?` where the operation leaves it open."""
    if not part.sources:
        return "?"
    ranks = " ".join(rank_spans(part.origins, "r"))
    if part.target is not None:
        return f"→r{part.target}"
    if len(ranks) > 14:
        ranks = f"{len(part.origins)} ranks"
    return f"{reduction(reduce_op).sign} {ranks}" if part.reduced else ranks


def shape_text(dtype: str, shape: Sequence[int]) -> str:
    """`float32[2, 3]`."""
    return f"{dtype}[{', '.join(map(str, shape))}]"


def summary_text(summary: Any) -> str:
    """`norm 3.2, from -1 to 1.5`; empty where there is none."""
    if not summary:
        return ""
    parts = [f"norm {number_text(summary['norm'])}"] if "norm" in summary else []
    if "min" in summary and "max" in summary:
        parts.append(f"from {number_text(summary['min'])} to {number_text(summary['max'])}")
    if summary.get("sampled"):
        parts.append(f"by {summary['sampled']:,} samples")
    return ", ".join(parts)


def shown_of(count: int, most: int, needed: Collection[int] = (), telling: Sequence[int] = ()) -> list[int | None]:
    """Which of so many are shown, None where some are left out: the first ones, the last, and those needed.

    Besides, as many as may be shown of those that tell most, even if it takes more room. Nothing stands for one alone.
    """
    if count <= most:
        return list(range(count))
    wanted = {*sorted(set(needed))[: max(1, most - 2)], *telling[:most]}
    room = max(1, most - 1 - len(wanted))
    kept = sorted({*range(room), *wanted, count - 1})
    shown: list[int | None] = []
    for before, index in zip([-1, *kept], kept, strict=False):
        left_out = index - before - 1
        shown += [*([] if not left_out else [before + 1] if left_out == 1 else [None]), index]
    return shown


def odd_elements(values: Sequence[Any]) -> list[int]:
    """The first of each kind that is not finite, the first minus zero, the first that is all but zero."""
    found: dict[str, int] = {}
    for i, value in enumerate(values):
        if isinstance(value, str):
            found.setdefault(value, i)
        elif isinstance(value, float) and abs(value) < _ALL_BUT_ZERO and (value or copysign(1, value) < 0):
            found.setdefault("-0.0" if not value else "small", i)
    return list(found.values())


def extremes(values: Sequence[Any]) -> list[int]:
    """The least and the greatest of the numbers."""
    numbers = [(v, i) for i, v in enumerate(values) if isinstance(v, (int, float)) and not isinstance(v, bool)]
    return [min(numbers)[1], max(numbers, key=itemgetter(0))[1]] if numbers else []
