"""The files that `lab test` writes when a suite is over: JUnit XML, Markdown, a page."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent

from lab.errors import LabError
from lab.features.compare.baseline import Baseline
from lab.features.compare.compare import baseline_title, change_lines
from lab.features.suite.outcome import Attempt, Outcome, SuiteResult, rates
from lab.features.suite.view import rate_text, suite_rows
from lab.record.record_files import open_log
from lab.record.result import Result
from lab.report.harmless import harmless, in_markdown, plain
from lab.report.style import STATUSES
from lab.report.table import MANY, alike, form_of
from lab.words import capital, clip, format_duration, name_ranks, plural

if TYPE_CHECKING:
    from lab.features.compare.baseline import Baseline

_LONGEST_REASON = 300
_LONGEST_TRACEBACK = 3000
_MOST_TOLD = 50
"""A job page holds 1 MiB; so many failures are told there with their tracebacks."""


def suite_markdown(found: SuiteResult, compared: Baseline | None = None) -> str:
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


_LAST_LINES = 20
_MOST_BYTES = 1 << 16
"""So much of the end of a log is looked at."""


def junit_xml(found: SuiteResult, began: float, compared: Baseline | None = None) -> str:
    """The whole file; `began`: the Unix time at which the suite did; `compared` is a suite of its own."""
    counts = found.counts
    numbers = {
        "tests": str(len(found.outcomes)),
        "failures": str(counts.get("failed", 0) + counts.get("hung", 0)),
        "errors": str(counts.get("error", 0)),
    }
    whole = Element("testsuites", {"name": "lab", "time": _seconds(found.duration_s), **numbers})
    suite = SubElement(whole, "testsuite", {"name": "lab test", "time": _seconds(found.duration_s), **numbers})
    suite.set("skipped", str(counts.get("skipped", 0)))
    suite.set("timestamp", time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(began)))
    properties = SubElement(suite, "properties")
    for name, value in _properties(found):
        SubElement(properties, "property", {"name": _text(name), "value": _text(value)})
    for outcome in found.outcomes:
        _case(suite, outcome)
    if compared is not None:
        _compared_junit(whole, compared)
    indent(whole)
    return _written(whole)


def _written(whole: Element) -> str:
    import io

    file = io.BytesIO()
    ElementTree(whole).write(file, encoding="utf-8", xml_declaration=True)
    return file.getvalue().decode() + "\n"


def _properties(found: SuiteResult) -> Iterator[tuple[str, str]]:
    yield "suite", found.suite
    yield "clusters", str(found.clusters)
    if found.seed is not None:
        yield "seed", str(found.seed)
    if found.not_run:
        yield "not run", f"{found.not_run}: {found.stopped}"
    for outcome in found.outcomes:
        if outcome.attempts and outcome.attempts[-1].result.path is not None:
            yield f"record of {outcome.case.id}", str(outcome.attempts[-1].result.path)


def _case(suite: Element, outcome: Outcome) -> None:
    case = outcome.case
    folder = case.scenario.script.parent.name
    attributes = {"name": _text(case.id), "classname": _text(folder or "lab"), "time": _seconds(outcome.took_s)}
    element = SubElement(suite, "testcase", attributes)
    if not outcome.attempts:
        SubElement(element, "skipped", {"message": _text(case.skipped)})
        return
    *earlier, last = outcome.attempts
    if not last.result.passed:
        kind = "error" if last.result.verdict == "error" else "failure"
        _told(SubElement(element, kind), last)
    for attempt in earlier:
        word = "Error" if attempt.result.verdict == "error" else "Failure"
        _told(SubElement(element, f"{'flaky' if last.result.passed else 'rerun'}{word}"), attempt)
    SubElement(element, "system-out").text = _text(_output(outcome))


def _compared_junit(whole: Element, compared: Baseline) -> None:
    """What is worse than before, as tests that failed."""
    worse = sum(case.worse for case in compared.cases)
    for element in (whole, SubElement(whole, "testsuite", {"name": _text(f"compared with {compared.name}")})):
        element.set("tests", str(int(element.get("tests", "0")) + len(compared.cases)))
        element.set("failures", str(int(element.get("failures", "0")) + worse))
        element.set("errors", element.get("errors", "0"))
    for case in compared.cases:
        test = SubElement(element, "testcase", {"name": _text(case.name), "classname": "baseline", "time": "0"})
        lines = change_lines(case)
        if case.worse:
            SubElement(test, "failure", {"type": "worse", "message": _text(lines[0])}).text = _text("\n".join(lines))
        elif lines:
            SubElement(test, "system-out").text = _text("\n".join(lines))


def _told(element: Element, attempt: Attempt) -> None:
    result = attempt.result
    element.set("type", result.verdict)
    element.set("message", _text(result.reason))
    lines = [result.reason]
    if result.culprit is not None:
        lines += [f"culprit: {result.culprit.who}: {result.culprit.error}", result.culprit.traceback]
    lines += [expectation.sentence() for expectation in result.unmet]
    lines += [f"hint: {attempt.hint}" if attempt.hint else "", f"record: {result.path}" if result.path else ""]
    element.text = _text("\n".join(line for line in lines if line))


def _output(outcome: Outcome) -> str:
    result = outcome.attempts[-1].result
    head = [f"record: {result.path}"] if result.path is not None else []
    head += [f"seed: {outcome.case.seed}"] if outcome.case.seed is not None else []
    return "\n".join([*head, *last_lines(result)])


def last_lines(result: Result, most: int = _LAST_LINES) -> Iterator[str]:
    """The end of what each rank printed, each under its name; of many ranks, once what is alike but for its numbers."""
    ranks = [*result.parents, *(rank for rank in result.ranks if rank.parent is None)]
    tails = {rank.rank: "\n".join(read_tail(rank.log_path, _MOST_BYTES)) for rank in ranks}
    printed = {rank: tail.splitlines() for rank, tail in tails.items() if tail}
    nodes = {rank.rank: rank.node for rank in ranks}
    for numbers, shown in rarest_first([(rank, lines[-most:]) for rank, lines in printed.items()]):
        alike = f", as {name_ranks(numbers[1:])}" if len(numbers) > 1 else ""
        cut = f", last {most} lines" if len(printed[numbers[0]]) > most else ""
        yield f"--- rank {numbers[0]} on {nodes[numbers[0]]}{alike}{cut}"
        yield from shown


def read_tail(log: Path | None, most_bytes: int) -> list[str]:
    """The lines at the end of a log; none where there is no such file, or nothing in it."""
    if log is None:
        return []
    try:
        with open_log(log) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most_bytes))
            text = file.read().decode("utf-8", "replace").rstrip()
    except OSError:
        return []
    return text.split("\n")[1 if size > most_bytes else 0 :] if text else []


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"


def _text(text: str) -> str:
    """The text without what XML cannot hold, or what acts where it is shown."""
    return harmless(text, colours=False)


def write_files(
    found: SuiteResult,
    began: float,
    compared: Baseline | None = None,
    *,
    junit: Path | None,
    markdown: Path | None,
    html: Path | None,
) -> None:
    """Write those that were asked for, and say which; `compared`: what these runs do worse than earlier ones.

    Raises:
        LabError: one cannot be written.
    """
    if junit is not None:
        _write(junit, junit_xml(found, began, compared))
    if markdown is not None:
        _write(markdown, suite_markdown(found, compared))
    if html is not None:
        _write_page(found, html)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}", "name another file") from error
    sys.stderr.write(f"  written: {path}\n")


def _write_page(found: SuiteResult, path: Path) -> None:
    """One page of all runs, which leads to the report of each."""
    from lab.features.records.records import Suite
    from lab.features.suite.page import write_suite
    from lab.record.read import Record

    results = [attempt.result for outcome in found.outcomes for attempt in outcome.attempts]
    records = tuple(Record(path=result.path) for result in results if result.path is not None)
    if not records:
        sys.stderr.write(f"  {path} is not written: no run left a record\n")
        return
    planned = sum(not outcome.case.skipped for outcome in found.outcomes) + found.not_run
    page = write_suite(Suite(name=found.suite, records=records, planned=planned), path)
    sys.stderr.write(f"  written: {page.path}\n")


def rarest_first(texts: Sequence[tuple[int, Sequence[str]]]) -> list[tuple[list[int], Sequence[str]]]:
    """Lines of each rank; of many ranks those of the first of each form, those of the fewest ranks first, and not all.

    Returns:
        At most `MANY` of them, with the ranks that they stand for.
    """
    if len(texts) <= MANY:
        return [([rank], lines) for rank, lines in texts]
    lines_of = dict(texts)
    groups = alike((rank, tuple(map(form_of, lines))) for rank, lines in texts)
    return [(ranks, lines_of[ranks[0]]) for ranks, _ in sorted(groups, key=lambda group: len(group[0]))[:MANY]]
