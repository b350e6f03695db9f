"""Whether a value that a rank noted is the expected one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def equal(expected: Any, got: Any, relative: float, absolute: float) -> bool:
    """Whether a noted value is the expected one.

    Two whole numbers, text, booleans and None have to be the same; numbers of which one is a float may differ by the
    larger of `absolute` and `relative` times the expected one; lists and mappings are compared item by item. NaN equals
    NaN; a boolean is not a number. What was noted is JSON: floats that it lacks are the strings `nan`, `inf`, `-inf`.
    """
    if isinstance(expected, (list, tuple)):
        alike = isinstance(got, (list, tuple)) and len(expected) == len(got)
        return alike and all(equal(*both, relative, absolute) for both in zip(expected, got, strict=True))
    if isinstance(expected, Mapping):
        alike = isinstance(got, Mapping) and expected.keys() == got.keys()
        return alike and all(equal(item, got[key], relative, absolute) for key, item in expected.items())
    if isinstance(expected, float) and isinstance(got, str):
        got = _NON_FINITE.get(got, got)
    numbers = [isinstance(value, (int, float)) and not isinstance(value, bool) for value in (expected, got)]
    if not all(numbers):
        return type(expected) is type(got) and bool(expected == got)
    if isinstance(expected, int) and isinstance(got, int):
        return expected == got
    try:
        expected, got = float(expected), float(got)
    except OverflowError:  # a whole number beyond every float
        return False
    if not math.isfinite(expected) or not math.isfinite(got):
        return bool(expected == got) or (math.isnan(expected) and math.isnan(got))
    return bool(abs(expected - got) <= max(relative * abs(expected), absolute))


def as_json(value: Any) -> Any:
    """The value with the floats that JSON lacks written as notes write them."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    return value
