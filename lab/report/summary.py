"""Many runs: a line for each as it ends, and a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from lab.errors import LabError, MachineLacks
from lab.record.result import Result
from lab.report.palette import STATUSES
from lab.report.style import Style
from lab.spec.scenario import Scenario
from lab.words import clip, format_duration, plural

_LONGEST_REASON = 140


def progress_line(number: int, total: int, scenario: Scenario, outcome: Result | LabError, style: Style) -> str:
    """One run that has ended: `[ 3/61] ✔ passed  scatter  3 ranks  72 ms`."""
    verdict, reason = _status(outcome), outcome.message if isinstance(outcome, LabError) else outcome.reason
    if isinstance(outcome, Result) and outcome.passed:
        reason = f"{plural(len(outcome.ranks), 'rank')}  {format_duration(outcome.duration_s)}"
    return ended_line(number, total, verdict, scenario.name, reason, style)


def ended_line(number: int, total: int, status: str, name: str, told: str, style: Style) -> str:
    """One of many that has ended, with its size and time, or with why it is not passed."""
    place = f"[{number:>{len(str(total))}}/{total}]"
    first = next(iter(told.splitlines()), "")
    return f"{place} {style.verdict(status)}  {style.paint(name, 'bold')}  {clip(first, _LONGEST_REASON)}".rstrip()


def summary_text(outcomes: Sequence[Result | LabError], elapsed_s: float, style: Style) -> str:
    """How many came to which verdict: `58 passed, 1 failed, 1 hung in 14.2 s`."""
    counts = Counter(map(_status, outcomes))
    return counts_text(counts, elapsed_s, style)


def _status(outcome: Result | LabError) -> str:
    if isinstance(outcome, LabError):
        return "skipped" if isinstance(outcome, MachineLacks) else "error"
    return outcome.verdict


def counts_text(counts: Mapping[str, int], elapsed_s: float, style: Style) -> str:
    """How many came to which end, and in what time."""
    parts = [
        style.paint(f"{counts[name]} {name}", tone.terminal) for name, tone in STATUSES.items() if counts.get(name)
    ]
    return f"{', '.join(parts) or 'nothing ran'} in {format_duration(elapsed_s)}"
