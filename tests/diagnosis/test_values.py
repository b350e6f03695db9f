"""When a noted value is the expected one."""

from __future__ import annotations

import math
from typing import Any

import pytest

from lab.diagnosis.expectations import equals_expected


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (3, 3),
        (3.0, 3),
        (3, 3.0),
        (0.3, 0.1 + 0.2),
        (1e-9, 0.0),
        ("a", "a"),
        (True, True),
        (None, None),
        ([1, [2.0, "x"]], [1, [2.0, "x"]]),
        ((1, 2), [1, 2]),
        ([], []),
        ({"a": [1]}, {"a": [1.0]}),
        (math.nan, "nan"),
        (math.nan, math.nan),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        ("nan", "nan"),
        ([1.0, 2.0], [1.0, 2.0]),
        (2**70, 2**70),
    ],
)
def test_these_values_are_equal(expected: Any, got: Any) -> None:
    assert equals_expected(expected, got, 1e-5, 1e-8)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (3, 4),
        (10**9, 10**9 + 1),
        (3.0, 3.1),
        (3, "3"),
        (3, [3]),
        ([3], 3),
        ([1, 2], [1]),
        ([1], [1, 2]),
        ([1, 2], "12"),
        (True, 1),
        (1, True),
        (0, False),
        (1.0, True),
        (None, 0),
        (None, False),
        ("a", "A"),
        ("1", 1),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1}, {"b": 1}),
        ({}, []),
        (math.nan, 0.0),
        (math.nan, "NaN?"),
        (math.inf, "-inf"),
        (math.inf, 1e308),
        (1.0, "nan"),
        (1.0, math.nan),
        ("nan", math.nan),
        (10**400, 1.0),
        (1.0, 10**400),
    ],
)
def test_these_values_are_not_equal(expected: Any, got: Any) -> None:
    assert not equals_expected(expected, got, 1e-5, 1e-8)
