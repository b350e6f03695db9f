"""A suite as Markdown, for the page of a CI job."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lab.report.baseline_view import baseline_title, change_lines
from lab.report.palette import STATUSES
from lab.report.suite_view import rate_text, suite_rows
from lab.suite.flakiness import rates
from lab.suite.outcome import Outcome, SuiteResult
from lab.trace.baseline import Baseline
from lab.words import capital, clip, format_duration, plural

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!@])")
_ACTING = re.compile(r"[^\t\n\x20-\x7e\xa0-\u2027\u2030-\u2065\u206a-\ud7ff\ue000-\U0010ffff]")
"""Control characters, and those that turn the direction of writing around."""
_LONGEST_REASON = 300
_LONGEST_TRACEBACK = 3000
_MOST_TOLD = 50
"""A job page holds 1 MiB; so many failures are told there with their tracebacks."""


def markdown(found: SuiteResult, compared: Baseline | None = None) -> str:
    """The whole page: the sum, what did not pass and why, a table, and what is worse than before."""
    return "\n".join([*_lines(found), *(_compared(compared) if compared is not None else ())]) + "\n"


def _compared(compared: Baseline) -> Iterator[str]:
    yield ""
    yield f"### {_plain(capital(baseline_title(compared)))}"
    for case in compared.cases:
        if case.changed:
            yield ""
            yield f"- {'✘' if case.worse else '·'} {_plain(case.name)}"
            yield from (f"  - {_plain(clip(line, _LONGEST_REASON))}" for line in change_lines(case))


def _lines(found: SuiteResult) -> Iterator[str]:
    counts = ", ".join(f"{STATUSES[status].sign} {count} {status}" for status, count in found.counts.items())
    yield f"## {counts or 'nothing ran'}"
    yield ""
    seed = f", seed {found.seed}" if found.seed is not None else ""
    cases, clusters = plural(found.planned, "case"), plural(found.clusters, "cluster")
    yield f"{cases} in {format_duration(found.duration_s)} on {clusters}{seed}"
    if found.not_run:
        yield ""
        yield f"**{plural(found.not_run, 'case')} did not run: {_plain(found.stopped)}**"
    bad = found.told_one_by_one
    for outcome in bad[:_MOST_TOLD]:
        yield ""
        yield from _failure(outcome)
    if len(bad) > _MOST_TOLD:
        yield ""
        yield f"… and {len(bad) - _MOST_TOLD} more"
    yield ""
    if found.repeated:
        yield from _rates(found)
    else:
        head, rows = suite_rows(found.outcomes)
        yield f"| {' | '.join(head)} |"
        yield f"|{'---|' * len(head)}"
        yield from (f"| {' | '.join(map(_plain, row))} |" for row in rows)


def _failure(outcome: Outcome) -> Iterator[str]:
    tone, result = STATUSES[outcome.status], outcome.telling.result
    yield f"### {_plain(tone.sign)} {_plain(outcome.case.id)} {outcome.status}"
    yield ""
    yield _plain(clip(outcome.reason, _LONGEST_REASON))
    culprit = result.culprit
    if culprit is not None:
        yield ""
        yield f"Culprit: {_plain(culprit.who)}: {_plain(clip(culprit.error, _LONGEST_REASON))}"
        if culprit.traceback:
            yield ""
            yield from (f"    {_shown(line)}" for line in culprit.traceback[-_LONGEST_TRACEBACK:].splitlines())
    if result.path is not None:
        yield ""
        yield f"Record: {_plain(str(result.path))}"


def _rates(found: SuiteResult) -> Iterator[str]:
    yield "| case | how often | in which ways |"
    yield "|---|---|---|"
    for rate in rates(found.outcomes):
        ways = "; ".join(
            f"{kind.count} x {kind.status}: {clip(kind.reason, _LONGEST_REASON)}"
            + (
                f" (seeds {', '.join(map(str, kind.seeds[:5]))}{', …' if len(kind.seeds) > 5 else ''})"
                if kind.seeds
                else ""
            )
            for kind in rate.kinds
        )
        yield f"| {_plain(rate.name)} | {_plain(rate_text(rate))} | {_plain(ways)} |"


def _plain(text: str) -> str:
    """The text as one line that says what it says: nothing in it is markup."""
    return _SPECIAL.sub(r"\\\1", _shown(" ".join(text.split())))


def _shown(text: str) -> str:
    """The text with what would act in it written out."""
    return _ACTING.sub(lambda one: f"(U+{ord(one[0]):04X})", text)
