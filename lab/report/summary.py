"""Many runs: a line for each as it ends, and a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lab.errors import LabError
from lab.record.result import Result
from lab.report.palette import VERDICTS
from lab.report.style import Style
from lab.spec.scenario import Scenario
from lab.words import clip, format_duration, plural

_LONGEST_REASON = 140


def progress_line(number: int, total: int, scenario: Scenario, outcome: Result | LabError, style: Style) -> str:
    """One run that has ended: `[ 3/61] ✔ passed  scatter  3 ranks  72 ms`."""
    verdict, reason = ("error", outcome.message) if isinstance(outcome, LabError) else (outcome.verdict, outcome.reason)
    place = f"[{number:>{len(str(total))}}/{total}]"
    head = f"{place} {style.verdict(verdict)}  {style.paint(scenario.name, 'bold')}"
    if isinstance(outcome, Result) and outcome.passed:
        return f"{head}  {plural(len(outcome.ranks), 'rank')}  {format_duration(outcome.duration_s)}"
    return f"{head}  {clip(reason.splitlines()[0], _LONGEST_REASON)}"


def summary_text(outcomes: Sequence[Result | LabError], elapsed_s: float, style: Style) -> str:
    """How many came to which verdict: `58 passed, 1 failed, 1 hung in 14.2 s`."""
    verdicts = Counter[str]("error" if isinstance(o, LabError) else o.verdict for o in outcomes)
    parts = [
        style.paint(f"{verdicts[name]} {name}", tone.terminal) for name, tone in VERDICTS.items() if verdicts[name]
    ]
    return f"{', '.join(parts) or 'nothing ran'} in {format_duration(elapsed_s)}"
