"""The attempts of a run whose launcher began the workers anew, for a person: a row each."""

from __future__ import annotations

from lab.record.result import Result
from lab.report.style import Style
from lab.report.table import table_text
from lab.words import clip, format_duration, listing, name_attempts

_LONGEST = 100
"""Letters of a reason."""


def attempts_text(result: Result, style: Style) -> str:
    """What became of each attempt, and how to see more of it; empty where there was but one."""
    if not result.attempts:
        return ""
    rows = [
        [
            str(one.number),
            str(one.world_size),
            listing(one.nodes),
            format_duration(one.duration_s),
            one.verdict,
            clip(one.reason, _LONGEST),
        ]
        for one in result.attempts
    ]
    table = table_text(["attempt", "ranks", "nodes", "time", "verdict", "reason"], rows, style)
    more = f"lab show {result.run} --attempt N shows {name_attempts(range(result.restarts))}"
    return f"{table}\n{style.paint(more, 'dim')}"
