"""A suite as Markdown, for the page of a CI job."""

from __future__ import annotations

from collections.abc import Iterator

from lab.features.compare.baseline import Baseline
from lab.features.compare.compare import baseline_title, change_lines
from lab.features.suite.outcome import Outcome, SuiteResult, rates
from lab.features.suite.view import rate_text, suite_rows
from lab.report.harmless import in_markdown, plain
from lab.report.palette import STATUSES
from lab.words import capital, clip, format_duration, plural

_LONGEST_REASON = 300
_LONGEST_TRACEBACK = 3000
_MOST_TOLD = 50
"""A job page holds 1 MiB; so many failures are told there with their tracebacks."""


def markdown(found: SuiteResult, compared: Baseline | None = None) -> str:
    """The whole page: the sum, what did not pass and why, a table, and what is worse than before."""
    return "\n".join([*_lines(found), *(_compared(compared) if compared is not None else ())]) + "\n"


def _compared(compared: Baseline) -> Iterator[str]:
    yield ""
    yield f"### {in_markdown(capital(baseline_title(compared)))}"
    for case in compared.cases:
        if case.changed:
            yield ""
            yield f"- {'✘' if case.worse else '·'} {in_markdown(case.name)}"
            yield from (f"  - {in_markdown(clip(line, _LONGEST_REASON))}" for line in change_lines(case))


def _lines(found: SuiteResult) -> Iterator[str]:
    counts = ", ".join(f"{STATUSES[status].sign} {count} {status}" for status, count in found.counts.items())
    yield f"## {counts or 'nothing ran'}"
    yield ""
    seed = f", seed {found.seed}" if found.seed is not None else ""
    cases, clusters = plural(found.planned, "case"), plural(found.clusters, "cluster")
    yield f"{cases} in {format_duration(found.duration_s)} on {clusters}{seed}"
    if found.not_run:
        yield ""
        yield f"**{plural(found.not_run, 'case')} did not run: {in_markdown(found.stopped)}**"
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
        yield from (f"| {' | '.join(map(in_markdown, row))} |" for row in rows)


def _failure(outcome: Outcome) -> Iterator[str]:
    tone, result = STATUSES[outcome.status], outcome.telling.result
    yield f"### {in_markdown(tone.sign)} {in_markdown(outcome.case.id)} {outcome.status}"
    yield ""
    yield in_markdown(clip(outcome.reason, _LONGEST_REASON))
    culprit = result.culprit
    if culprit is not None:
        yield ""
        yield f"Culprit: {in_markdown(culprit.who)}: {in_markdown(clip(culprit.error, _LONGEST_REASON))}"
        if culprit.traceback:
            yield ""
            yield from (f"    {plain(line)}" for line in culprit.traceback[-_LONGEST_TRACEBACK:].splitlines())
    if result.path is not None:
        yield ""
        yield f"Record: {in_markdown(str(result.path))}"


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
        yield f"| {in_markdown(rate.name)} | {in_markdown(rate_text(rate))} | {in_markdown(ways)} |"
