"""A suite for a person: what every worker does now, a line for each case that ends, and a table of all."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING

from lab.features.suite.cases import Attempt, Case, Outcome, Rate, SuiteResult, rates
from lab.report.harmless import harmless
from lab.report.style import Style, style_for
from lab.report.table import table_text
from lab.report.verdict import counts_text, ended_line, unmet_sentences, written_snapshots
from lab.words import NONE, clip, format_duration, listing, plural

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live


class Watcher:
    """Watches a suite; every method returns quickly, and here does nothing."""

    def begins(self, why: str, cases: int, clusters: int) -> None:
        """So many cases are about to run, on so many clusters at most."""

    def told(self, worker: int, text: str) -> None:
        """Something is being done that takes a moment."""

    def working(self, worker: int, doing: str, case: Case | None) -> None:
        """What a worker does from now on, in a word or two; with its case, if it runs one."""

    def again(self, case: Case, attempt: int, attempts: int, failed: Attempt) -> None:
        """A case that has failed is tried again."""

    def ended(self, outcome: Outcome, done: int) -> None:
        """A case has ended; so many have."""

    def tick(self) -> None:
        """The suite goes on; called some times a second."""


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


_LASTING = ("warning", "using", "removed", "interrupted")
"""What is told like this stays to be read."""
_BAR = 40


class SuiteDisplay(Watcher):
    """Shows a suite; a watcher of one, and a context manager.

    Args:
        out: where cases that have ended are told.
        status: where the rest goes.
        quiet: tell nothing but what did not pass.
        machine: `out` is for data, and nothing is told there.
    """

    def __init__(self, out: IO[str], status: IO[str], *, quiet: bool = False, machine: bool = False) -> None:
        self._out = status if machine else out
        self._status = status
        self._quiet = quiet
        self._style: Style = style_for(self._out)
        self._live: Live | None = None
        self._workers: dict[int, tuple[str, float]] = {}
        self._done, self._planned, self._bad, self._drawn = 0, 0, 0, 0.0

    def __enter__(self) -> SuiteDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def begins(self, why: str, cases: int, clusters: int) -> None:
        """Say how many clusters there are and why, and show what they do from now on."""
        self._planned = cases
        if not self._quiet:
            self._print(self._style.paint(why, "dim"))
        if self._status.isatty() and not self._quiet:
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._status, highlight=False, markup=False)
            self._live = Live(console=console, transient=True, auto_refresh=False, redirect_stdout=False)
            self._live.start()
            self.tick()

    def told(self, worker: int, text: str) -> None:
        """Show what a worker is doing; elsewhere than on a terminal, only what matters later."""
        if text.startswith(_LASTING):
            self._print(self._style.paint(harmless(text), "yellow"))
        elif worker:
            self._workers[worker] = (harmless(text), time.monotonic())

    def working(self, worker: int, doing: str, case: Case | None) -> None:
        """Show what a worker does."""
        text = " ".join(word for word in (doing, case.id if case else "") if word)
        self._workers[worker] = (text, time.monotonic())

    def again(self, case: Case, attempt: int, attempts: int, failed: Attempt) -> None:
        """Tell that a case is tried again."""
        self._print(again_line(case, attempt, attempts, failed, self._style))

    def ended(self, outcome: Outcome, done: int) -> None:
        """Tell what came of a case."""
        self._done = done
        self._bad += not outcome.good
        if not (self._quiet and outcome.good):
            self._print(outcome_line(outcome, done, self._planned, self._style))

    def tick(self) -> None:
        """Draw what every worker does, and the bar."""
        if self._live is not None and time.monotonic() - self._drawn > 0.2:
            self._drawn = time.monotonic()
            self._live.update(self._now(), refresh=True)

    def _print(self, text: str) -> None:
        """A line that stays, above what changes."""
        if self._live is not None:
            self._live.update("", refresh=True)
        print(harmless(text), file=self._out, flush=True)
        self._drawn = 0.0

    def _now(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        lines = []
        for worker, (text, since) in sorted(self._workers.items()):
            if text:
                line = f"  {worker}  {format_duration(round(time.monotonic() - since)):>6}  {text}"
                lines.append(Text(line, style="dim", no_wrap=True, overflow="ellipsis"))
        bar = Table.grid(padding=(0, 1))
        told = f"{self._done}/{self._planned}{f', {self._bad} not passed' if self._bad else ''}"
        bar.add_row(ProgressBar(total=max(1, self._planned), completed=self._done, width=_BAR), Text(told))
        return Group(*lines, bar)
