"""A suite for a person: a line for each case as it ends, and afterwards failures in short, rates and a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lab.features.suite.case import Case
from lab.features.suite.flakiness import Rate, rates
from lab.features.suite.outcome import Attempt, Outcome, SuiteResult
from lab.report.style import Style
from lab.report.summary import counts_text, ended_line
from lab.report.table import table_text
from lab.report.verdict import unmet_sentences, written_snapshots
from lab.words import NONE, clip, format_duration, listing, plural

_MOST_ROWS = 60
"""Of a longer suite only what did not simply pass stands in the table."""
_MOST_UNMET = 3
_MOST_SEEDS = 5
_LONGEST_REASON = 100


def outcome_line(outcome: Outcome, done: int, planned: int, style: Style) -> str:
    """One case that has ended: `[ 3/61] ✔ passed  scatter[nodes=5]  5 ranks  72 ms`."""
    told = outcome.reason
    if outcome.status == "passed":
        told = f"{plural(outcome.case.world_size, 'rank')}  {format_duration(outcome.took_s)}"
    return ended_line(done, planned, outcome.status, outcome.case.id, told, style)


def again_line(case: Case, attempt: int, attempts: int, failed: Attempt, style: Style) -> str:
    """A case that is tried again."""
    reason = clip(next(iter(failed.result.reason.splitlines()), ""), _LONGEST_REASON)
    verdict = style.verdict(failed.result.verdict)
    return f"{verdict}  {style.paint(case.id, 'bold')}  {reason}; attempt {attempt + 1} of {attempts} follows"


def suite_text(found: SuiteResult, style: Style, *, brief: bool = False) -> str:
    """Failures in short, then rates or a table, then how many came to which end; `brief`: without the table."""
    parts = ["\n".join(failure_lines(outcome, style)) for outcome in found.told_one_by_one]
    if found.repeated:
        parts.append("\n".join(line for rate in rates(found.outcomes) for line in rate_lines(rate, style)))
    elif found.outcomes and not brief:
        parts.append(table_text(*suite_rows(found.outcomes), style))
    parts.append("\n".join(_end(found, style)))
    return "\n\n".join(part for part in parts if part)


def failure_lines(outcome: Outcome, style: Style) -> Iterator[str]:
    """Why a case did not simply pass, who is to blame, and where the record is."""
    yield f"{style.verdict(outcome.status)}  {style.paint(outcome.case.id, 'bold')}  {outcome.reason}"
    attempt = outcome.telling
    result = attempt.result
    if result.culprit is not None and result.culprit.error:
        yield f"  culprit: {result.culprit.who}: {clip(result.culprit.error, _LONGEST_REASON)}"
    unmet = unmet_sentences(result)
    yield from (f"  {style.paint('✘', 'red')} {sentence}" for sentence in unmet[:_MOST_UNMET])
    if len(unmet) > _MOST_UNMET:
        yield f"    and {len(unmet) - _MOST_UNMET} more"
    if attempt.hint:
        yield f"  hint: {attempt.hint}"
    if outcome.case.seed is not None:
        yield style.paint(f"  seed: {outcome.case.seed}", "dim")
    if result.path is not None:
        yield style.paint(f"  record: {result.path}", "dim")


def rate_lines(rate: Rate, style: Style) -> Iterator[str]:
    """How often a repeated case failed, and in which ways."""
    yield f"{style.paint(rate.name, 'bold')}  {rate_text(rate)}"
    for kind in rate.kinds:
        yield f"  {kind.count} x {style.verdict(kind.status)}  {kind.reason}"
        if kind.seeds:
            more = f" and {len(kind.seeds) - _MOST_SEEDS} more" if len(kind.seeds) > _MOST_SEEDS else ""
            seeds = ", ".join(map(str, kind.seeds[:_MOST_SEEDS]))
            yield style.paint(f"    {'seeds' if len(kind.seeds) > 1 else 'seed'} {seeds}{more}", "dim")
        if kind.record is not None:
            yield style.paint(f"    {'first record' if kind.count > 1 else 'record'}: {kind.record}", "dim")


def rate_text(rate: Rate) -> str:
    """`3 of 100 did not pass (3%, in the long run between 1% and 8.5%, with 95% confidence)`."""
    low, high = rate.bounds
    between = f"between {percent(low)} and {percent(high)}" if low > 0 else f"at most {percent(high)}"
    part = f"{percent(rate.part)}, " if rate.failed else ""
    return f"{rate.failed} of {rate.ran} did not pass ({part}in the long run {between}, with 95% confidence)"


def percent(part: float) -> str:
    """`3%`, `8.5%`, `0.12%`."""
    return f"{100 * part:.2g}%" if part < 0.1 else f"{100 * part:.3g}%"


def suite_rows(outcomes: Sequence[Outcome]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table of all cases; of very many, those that did not simply pass."""
    shown = outcomes if len(outcomes) <= _MOST_ROWS else [one for one in outcomes if not one.good]
    head = ["case", "result", "ranks", "time", "attempts", "record"]
    return head, [
        [
            one.case.id,
            one.status,
            str(one.case.world_size),
            format_duration(one.took_s) if one.attempts else NONE,
            str(len(one.attempts) or NONE),
            one.attempts[-1].result.run or NONE if one.attempts else NONE,
        ]
        for one in shown
    ]


def _end(found: SuiteResult, style: Style) -> Iterator[str]:
    yield counts_text(found.counts, found.duration_s, style)
    if found.not_run:
        yield style.paint(f"{plural(found.not_run, 'case')} did not run: {found.stopped}", "yellow")
    written = (line for one in found.outcomes if one.attempts for line in written_snapshots(one.attempts[-1].result))
    yield from dict.fromkeys(written)
    flaky = [one.case.id for one in found.outcomes if one.status == "flaky"]
    if flaky:
        yield style.paint(f"flaky: {listing(flaky)} passed only when tried again", "yellow")
    if found.seed is not None:
        yield style.paint(f"seed: {found.seed}", "dim")
