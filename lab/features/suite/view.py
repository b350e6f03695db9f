"""Show a suite: progress lines, a table, JUnit XML, Markdown, and a page."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple
from xml.sax.saxutils import quoteattr

from lab.cli.arguments import write_text
from lab.features.compare.baseline import Baseline
from lab.features.compare.compare import baseline_title, change_lines
from lab.features.suite.cases import Case, Kind, Outcome, Rate, SuiteResult, compute_rates
from lab.record.record_files import read_tail
from lab.record.result import RankResult, Result
from lab.report.live import Bottom, fit_columns
from lab.report.sanitize import sanitize_plain, sanitize_text
from lab.report.style import MANY, STATUSES, Style, group_equal, mask_numbers, style_for, table_text
from lab.report.verdict import counts_text, ended_line, unmet_sentences, written_snapshots
from lab.run.cluster_slot import RunAttempt
from lab.words import NONE, capitalize_first, clip_end, format_count, format_duration, join_words, name_ranks

_MOST_ROWS = 60
"""In a larger suite, the table lists only cases that did not pass at once."""
_MOST_UNMET = 3
_MOST_SEEDS = 5
_LONGEST_REASON = 100
_LONGEST_IN_MARKDOWN = 300
_LAST_LINES = 20
_MOST_BYTES = 1 << 16
"""Bytes at the end of a log that are read."""
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~&!$])")
_ADDRESS = re.compile(r"(?i)\b(?:https?|ftp|mailto|xmpp):|\bwww\.")
_FIRST = re.compile(r"\A([-+=](?=[-+=\s]|\Z)|\d+[.)](?=\s|\Z))")
"""What turns a line that begins with it into a list item or a heading."""
_MENTION = re.compile(r"(@|\\#(?=\d))")


class Watcher:
    """Observe a suite; each method must return quickly, and does nothing here."""

    def begins(self, why: str, cases: int, clusters: int) -> None:
        """The suite begins: the number of cases, and of clusters at most."""

    def announce(self, worker: int, text: str) -> None:
        """A worker does something that takes a moment."""

    def working(self, worker: int, activity: str, case: Case | None) -> None:
        """A worker begins an activity, with its case if it runs one."""

    def again(self, case: Case, attempt: int, attempts: int, failed: RunAttempt) -> None:
        """A failed case will be retried."""

    def ended(self, outcome: Outcome, done: int) -> None:
        """A case ended; `done` cases have ended."""

    def tick(self) -> None:
        """The suite continues; called several times a second."""


# -- on a terminal


def outcome_line(outcome: Outcome, done: int, planned: int, style: Style) -> str:
    """Format one case that ended: `[ 3/61] ✔ passed  scatter[nodes=5]  5 ranks  72 ms`."""
    size = f"{format_count(outcome.case.world_size, 'rank')}  {format_duration(outcome.took_s)}"
    text = size if outcome.status == "passed" else outcome.reason
    return ended_line(done, planned, outcome.status, outcome.case.id, text, style)


def again_line(case: Case, attempt: int, attempts: int, failed: RunAttempt, style: Style) -> str:
    """Format a case that will be retried."""
    reason = clip_end(next(iter(failed.result.reason.splitlines()), ""), _LONGEST_REASON)
    verdict = style.verdict(failed.result.verdict)
    return f"{verdict}  {style.paint(case.id, 'bold')}  {reason}; attempt {attempt + 1} of {attempts} follows"


def suite_text(result: SuiteResult, style: Style, *, brief: bool = False) -> str:
    """Format failures, then rates or a table, then the counts; `brief`: without the table."""
    parts = ["\n".join(failure_lines(outcome, style)) for outcome in result.listed_failures]
    if result.repeated:
        parts.append("\n".join(line for rate in compute_rates(result.outcomes) for line in rate_lines(rate, style)))
    elif result.outcomes and not brief:
        parts.append(table_text(*suite_rows(result.outcomes), style))
    parts.append("\n".join(_end(result, style)))
    return "\n\n".join(part for part in parts if part)


def failure_lines(outcome: Outcome, style: Style) -> Iterator[str]:
    """Explain why a case did not pass at once, name the culprit, and locate the record."""
    yield f"{style.verdict(outcome.status)}  {style.paint(outcome.case.id, 'bold')}  {outcome.reason}"
    attempt, result = outcome.decisive, outcome.decisive.result
    if result.culprit is not None and result.culprit.error:
        yield f"  culprit: {result.culprit.who}: {clip_end(result.culprit.error, _LONGEST_REASON)}"
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
    """Format how often a repeated case failed, and in which ways."""
    yield f"{style.paint(rate.name, 'bold')}  {rate_text(rate)}"
    for kind in rate.kinds:
        yield f"  {kind.count} x {style.verdict(kind.status)}  {kind.reason}"
        if kind.seeds:
            yield style.paint(f"    {seeds_text(kind)}", "dim")
        if kind.record is not None:
            yield style.paint(f"    {'first record' if kind.count > 1 else 'record'}: {kind.record}", "dim")


def rate_text(rate: Rate) -> str:
    """Format a rate: `3 of 100 did not pass (3%)`."""
    return f"{rate.failed} of {rate.ran} did not pass ({100 * rate.part:.3g}%)"


def suite_rows(outcomes: Sequence[Outcome]) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the table of all cases; of very many, those that did not pass at once."""
    shown = outcomes if len(outcomes) <= _MOST_ROWS else [one for one in outcomes if not one.good]

    def row(one: Outcome) -> list[str]:
        took, tried = format_duration(one.took_s) if one.attempts else NONE, str(len(one.attempts) or NONE)
        return [one.case.id, one.status, str(one.case.world_size), took, tried, one.last.run or NONE]

    return ["case", "result", "ranks", "time", "attempts", "record"], list(map(row, shown))


def _end(result: SuiteResult, style: Style) -> Iterator[str]:
    yield counts_text(result.counts, result.duration_s, style)
    if result.not_run:
        yield style.paint(f"{format_count(result.not_run, 'case')} did not run: {result.stopped}", "yellow")
    yield from dict.fromkeys(line for one in result.outcomes for line in written_snapshots(one.last))
    if flaky := [one.case.id for one in result.outcomes if one.status == "flaky"]:
        yield style.paint(f"flaky: {join_words(flaky)} passed only after a retry", "yellow")
    if result.seed is not None:
        yield style.paint(f"seed: {result.seed}", "dim")


_LASTING = ("warning", "using", "removed", "interrupted")
"""Announcements with such a beginning stay on the screen."""
_REDRAW_S = 0.2


class SuiteDisplay(Watcher):
    """Show a suite; a watcher and a context manager.

    Args:
        out: Stream for cases that ended.
        status: Stream for the rest.
        quiet: Show only what did not pass.
        machine: Use `out` for data: a line of JSON for each case that ended.
    """

    def __init__(self, out: IO[str], status: IO[str], *, quiet: bool = False, machine: bool = False) -> None:
        self._out = status if machine else out
        self._data = out if machine else None
        self._quiet = quiet
        self._style: Style = style_for(self._out)
        self._bottom = Bottom(None if quiet else status)
        self._workers: dict[int, tuple[str, float]] = {}
        self._done, self._planned, self._bad, self._drawn = 0, 0, 0, 0.0

    def __enter__(self) -> SuiteDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        self._bottom.wipe()

    def begins(self, why: str, cases: int, clusters: int) -> None:
        """Print the number of clusters and its reason."""
        self._planned = cases
        if not self._quiet:
            self._print(self._style.paint(why, "dim"))

    def announce(self, worker: int, text: str) -> None:
        """Show what a worker does; on other streams than a terminal, only what matters later."""
        if text.startswith(_LASTING):
            self._print(self._style.paint(sanitize_text(text), "yellow"))
        elif worker:
            self._workers[worker] = (sanitize_text(text), time.monotonic())

    def working(self, worker: int, activity: str, case: Case | None) -> None:
        """Show the activity of a worker."""
        self._workers[worker] = (f"{activity} {case.id}" if case else activity, time.monotonic())

    def again(self, case: Case, attempt: int, attempts: int, failed: RunAttempt) -> None:
        """Print that a case will be retried."""
        self._print(again_line(case, attempt, attempts, failed, self._style))

    def ended(self, outcome: Outcome, done: int) -> None:
        """Print the outcome of a case."""
        self._done = done
        self._bad += not outcome.good
        if not (self._quiet and outcome.good):
            self._print(outcome_line(outcome, done, self._planned, self._style))
        if self._data is not None:
            print(json.dumps(outcome.to_json()), file=self._data, flush=True)

    def tick(self) -> None:
        """Draw the activity of each worker, and how many cases ended."""
        now = time.monotonic()
        if self._bottom.is_terminal and now - self._drawn > _REDRAW_S:
            self._drawn = now
            columns, rows = self._bottom.size
            working = [(worker, *activity) for worker, activity in sorted(self._workers.items()) if activity[0]]
            texts = [f"  {worker}  {format_duration(round(now - since)):>6}  {text}" for worker, text, since in working]
            lines = [self._style.paint(fit_columns(text, columns), "dim") for text in texts]
            ended = f"{self._done}/{self._planned}{f', {self._bad} not passed' if self._bad else ''}"
            self._bottom.show([*lines[: rows - 1], fit_columns(ended, columns)])

    def _print(self, text: str) -> None:
        """Print a line that stays, above the status area."""
        self._bottom.wipe()
        print(sanitize_text(text), file=self._out, flush=True)
        self._drawn = 0.0


# -- Markdown, for the page of a CI job


def suite_markdown(result: SuiteResult, compared: Baseline | None = None) -> str:
    """Format the page: the counts, the failures with reasons, a table, and regressions from the baseline."""
    head, rows = suite_rows(result.outcomes)
    if result.repeated:
        head = ["case", "failures", "kinds of failures"]
        rates = compute_rates(result.outcomes)
        rows = [[rate.name, rate_text(rate), "; ".join(map(kind_text, rate.kinds))] for rate in rates]
    counts = ", ".join(f"{STATUSES[status].sign} {count} {status}" for status, count in result.counts.items())
    title = capitalize_first(baseline_title(compared)) if compared is not None else ""
    shown = {"result": result, "counts": counts, "head": head, "rows": rows, "compared": compared, "title": title}
    return _fill("suite.md", signs=STATUSES, **shown)


def escape_markdown(text: str, *, code: bool = False) -> str:
    """Return text as one line of Markdown that renders as it is: no markup, link, mention, or formula.

    With `code`, text between two backticks stays code, in which nothing acts.
    """
    line = " ".join(text.split())
    parts = re.split(r"(?<!`)(`[^`\\]+`)(?!`)", line) if code else [line]
    shown = "".join(sanitize_text(part, colours=False) if at % 2 else _escaped(part) for at, part in enumerate(parts))
    return _FIRST.sub(lambda match: f"{match[1][:-1]}\\{match[1][-1]}", shown)


def _escaped(line: str) -> str:
    line = _MARKUP.sub(r"\\\1", sanitize_text(line, colours=False))
    line = _ADDRESS.sub(lambda match: f"{match[0][:-1]}\\{match[0][-1]}", line)
    return _MENTION.sub(lambda match: f"`{match[1][-1]}`", line)  # pages find mentions after escapes, but not in code


def _fill(template: str, **shown: Any) -> str:
    """Fill a template; what its filters return is text in its format, in which nothing acts."""
    from markupsafe import Markup

    from lab.features.html.write import fill_template

    filters: dict[str, Callable[..., Any]] = {
        "markdown": lambda text: Markup(escape_markdown(text)),
        "clip": lambda text: clip_end(text, _LONGEST_IN_MARKDOWN),
        "plain": lambda line: Markup(sanitize_plain(line)),
        "attribute": lambda value: Markup(quoteattr(sanitize_text(str(value), colours=False))),
        "failure": failure_text,
        "output": output_text,
        "change_lines": change_lines,
    }
    return fill_template(template, filters, **shown)


def kind_text(kind: Kind) -> str:
    """Format one kind of failure: `2 x failed: rank 1 raised ValueError (seeds 3, 7)`."""
    text = f"{kind.count} x {kind.status}: {clip_end(kind.reason, _LONGEST_IN_MARKDOWN)}"
    return f"{text} ({seeds_text(kind)})" if kind.seeds else text


def seeds_text(kind: Kind) -> str:
    """Format seeds: `seeds 3, 7`, with the number of omitted ones."""
    hidden = f" and {len(kind.seeds) - _MOST_SEEDS} more" if len(kind.seeds) > _MOST_SEEDS else ""
    return f"seed{'s' * (len(kind.seeds) > 1)} {', '.join(map(str, kind.seeds[:_MOST_SEEDS]))}{hidden}"


# -- JUnit XML


def junit_xml(result: SuiteResult, compared: Baseline | None = None) -> str:
    """Format a JUnit XML file; the comparison is a separate suite, in which regressions are failed tests."""
    properties = {
        "suite": result.suite,
        "clusters": result.clusters,
        "seed": result.seed,
        "not run": f"{result.not_run}: {result.stopped}" if result.not_run else None,
        **{f"record of {one.case.id}": one.last.path for one in result.outcomes if one.attempts},
    }
    counts = {name: result.counts.get(name, 0) for name in STATUSES}
    shown = {"result": result, "properties": properties, "counts": counts, "compared": compared}
    worse = [case.worse for case in compared.cases] if compared is not None else []
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(result.began))
    return _fill("suite.xml", **shown, worse=worse, timestamp=stamp)


def failure_text(attempt: RunAttempt) -> str:
    """Return why an attempt failed: the reason, the culprit, unmet expectations, the hint, and the record."""
    result, culprit = attempt.result, attempt.result.culprit
    lines = [result.reason]
    if culprit is not None:
        lines += [f"culprit: {culprit.who}: {culprit.error}", culprit.traceback]
    lines += [expectation.sentence() for expectation in result.unmet]
    lines += [f"hint: {attempt.hint}" if attempt.hint else "", f"record: {result.path}" if result.path else ""]
    return "\n".join(filter(None, lines))


def output_text(outcome: Outcome) -> str:
    """Return the record, the seed, and the last lines of each rank."""
    result, seed = outcome.last, outcome.case.seed
    head = [f"record: {result.path}"] if result.path is not None else []
    head += [f"seed: {seed}"] if seed is not None else []
    return "\n".join([*head, *last_lines(result)])


class LastLines(NamedTuple):
    """The last lines of a rank, or of ranks whose last lines differ only in numbers."""

    who: str
    """`rank 0 on node0`."""
    others: str
    """`, as ranks 1-7`; empty: no other ranks."""
    lines: Sequence[str]
    cut: bool
    """Whether there are earlier lines."""


def last_printed(
    result: Result, most: int, read_lines: Callable[[RankResult], Sequence[str]]
) -> tuple[list[LastLines], int]:
    """Return the last lines of each rank, from `read_lines`; of many ranks, similar ones once.

    Returns:
        At most `MANY` of them, and how many ranks are left out.
    """
    ranks = {rank.rank: rank for rank in (*result.parents, *(one for one in result.ranks if one.parent is None))}
    printed = {number: lines for number, rank in ranks.items() if (lines := read_lines(rank))}
    is_abbreviated, shown, left = len(printed) > MANY, list[LastLines](), len(printed)
    ends = (
        (number, tuple(map(mask_numbers, lines[-most:])) if is_abbreviated else number)
        for number, lines in printed.items()
    )
    for numbers, _ in sorted(group_equal(ends), key=lambda group: len(group[0]))[:MANY]:
        first, lines = ranks[numbers[0]], printed[numbers[0]]
        others = f", as {name_ranks(numbers[1:])}" if len(numbers) > 1 else ""
        shown.append(LastLines(f"rank {first.rank} on {first.node}", others, lines[-most:], len(lines) > most))
        left -= len(numbers)
    return shown, left


def last_lines(result: Result, most: int = _LAST_LINES) -> Iterator[str]:
    """Yield the last lines of each rank, each under its name; of many ranks, similar ones once."""

    def read_lines(rank: RankResult) -> list[str]:
        return "\n".join(read_tail(rank.log_path, _MOST_BYTES)).splitlines()

    for one in last_printed(result, most, read_lines)[0]:
        yield f"--- {one.who}{one.others}{f', last {most} lines' if one.cut else ''}"
        yield from one.lines


# -- all files


def write_files(
    result: SuiteResult, compared: Baseline | None, *, junit: Path | None, markdown: Path | None, html: Path | None
) -> None:
    """Write the requested files, and print their names; `compared`: these runs compared with the baseline.

    Raises:
        LabError: A file cannot be written.
    """
    for path, render in ((junit, junit_xml), (markdown, suite_markdown)):
        if path is not None:
            write_text(path, render(result, compared), makes_folder=True)
            sys.stderr.write(f"  written: {path}\n")
    if html is not None:  # one page with all runs and links to their reports
        from lab.features.records.records import Suite
        from lab.features.suite.page import write_suite
        from lab.record.read import Record

        paths = (attempt.result.path for outcome in result.outcomes for attempt in outcome.attempts)
        if not (records := tuple(Record(path=one) for one in paths if one is not None)):
            sys.stderr.write(f"  {html} was not written: no run left a record\n")
            return
        planned = sum(not outcome.case.skipped for outcome in result.outcomes) + result.not_run
        page = write_suite(Suite(name=result.suite, records=records, planned=planned), html)
        sys.stderr.write(f"  written: {page.path}\n")
