"""What a line of a trace holds, taken out with its type: a script can write whatever it likes into its trace."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lab.trace.model import Buffer

DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What a line that no recorder wrote may raise where it is read."""
_LARGEST = 1 << 63
"""Times, sizes and counts from here on are damage."""
_GREATEST = 1e300
_NUMBERS = {int, float, bool}
_NON_FINITE = ("nan", "inf", "-inf")


def number(line: Mapping[str, Any], key: str) -> int:
    """A whole number of a line; 0 where there is none, or one that no recorder writes."""
    value = line.get(key)
    return int(value) if isinstance(value, (int, float)) and abs(value) < _LARGEST else 0


def whole(value: Any, most: int = _LARGEST) -> int:
    """A count, a time or an index.

    Raises:
        ValueError: it is none.
    """
    if type(value) is not int or not 0 <= value < most:
        raise ValueError(value)
    return value


def buffers(described: Any, values: Any, summaries: Any) -> tuple[Buffer, ...]:
    """Tensors, from their types and sizes, with what is known of their elements."""
    found = []
    for i, (dtype, shape) in enumerate(described):
        kept = values[i] if values and i < len(values) else None
        told = summaries[i] if summaries and i < len(summaries) else None
        found.append(Buffer(str(dtype), sizes(shape), _elements(kept), _summary(told)))
    return tuple(found)


def sizes(shape: Any) -> tuple[int, ...]:
    """The sizes of a tensor's dimensions.

    Raises:
        ValueError: no tensor is like that.
    """
    found = tuple(map(whole, shape))
    if len(found) > 1 and math.prod(found) >= _LARGEST:
        raise ValueError(found)
    return found


def _elements(found: Any) -> list[Any] | None:
    """The elements of a tensor: numbers, or pairs of them; None where they are not."""
    if not isinstance(found, list):
        return None
    if {*map(type, found)} <= _NUMBERS and abs(sum(found)) < _GREATEST:
        return found
    return found if all(_is_element(one) for one in found) else None


def _is_element(one: Any) -> bool:
    if isinstance(one, list):
        return len(one) == 2 and not any(isinstance(part, list) for part in one) and all(map(_is_element, one))
    return one in _NON_FINITE if isinstance(one, str) else type(one) in _NUMBERS and math.isfinite(one)


def _summary(found: Any) -> Mapping[str, Any] | None:
    """What is known of a tensor that was too large to be kept; None where it is not that."""
    if not isinstance(found, dict) or not isinstance(found.get("hash", ""), str):
        return None
    known = [found[name] for name in ("n", "norm", "min", "max", "sampled") if name in found]
    return found if _elements(known) is not None else None
