"""The page writes numbers as everything else does: `words.js` and `lab/words.py` have the same rules."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from lab.words import capitalize_first, clip_end, format_bytes, format_count, format_duration, format_moment, name_ranks
from tests.browser.runs import training

_NUMBERS = random.Random(1)
WHOLE = sorted({
    *range(1100),
    *(round(10 ** (power / 10)) for power in range(130)),
    *(digits * 10**power for power in range(9) for digits in (999, 1025, 9995, 9994, 10_250, 99_949, 99_950, 999_500)),
    *(_NUMBERS.randrange(10**power) for power in range(4, 14) for _ in range(50)),
})  # fmt: skip
AXES = [(tick * step, step) for step in (1, 2, 5, 20, 100, 500, 2000, 50_000, 200_000, 10**6) for tick in range(8)]
RANKS = [
    *(sorted(_NUMBERS.sample(range(12), count)) for count in range(1, 12) for _ in range(8)),
    *(sorted(_NUMBERS.sample(range(256), count)) for count in (9, 30, 250)),
    *([*range(first, 256, distance)] for first, distance in ((0, 2), (1, 3), (5, 11), (0, 8), (3, 22))),
]


PYTHON: dict[str, Callable[..., str]] = {
    "duration": lambda us: format_duration(us / 1e6),
    "bytes": format_bytes,
    "moment": lambda us, distance: format_moment(us / 1e6, distance / 1e6),
    "nameRanks": name_ranks,
    "plural": format_count,
    "capital": capitalize_first,
    "clip": clip_end,
}
GIVEN: dict[str, list[list[Any]]] = {
    "duration": [[us] for us in WHOLE],
    "bytes": [[size] for size in WHOLE],
    "moment": [list(axis) for axis in AXES],
    "nameRanks": [[ranks] for ranks in RANKS],
    "plural": [[count, "rank"] for count in WHOLE],
    "clip": [["abcdef", 6], ["abcdefg", 6], ["abcd efg", 6], ["", 1]],
    "capital": [["ranks 0 and 1"], ["Élan"], [""]],
}


@pytest.fixture
def page(open_report: Callable[..., Page], tmp_path: Path) -> Page:
    return open_report(training(tmp_path / "run"))


def test_the_page_writes_numbers_and_ranks_as_python_does(page: Page):
    written = page.evaluate(
        """async (given) => {
            const words = await import("lab/words");
            const write = ([name, calls]) => [name, calls.map((one) => words[name](...one))];
            return Object.fromEntries(Object.entries(given).map(write));
        }""",
        GIVEN,
    )
    for name, calls in GIVEN.items():
        answers = zip(calls, written[name], strict=True)
        assert [(one, text) for one, text in answers if text != PYTHON[name](*one)] == [], name
