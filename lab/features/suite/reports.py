"""The files that `lab test` writes when a suite is over: JUnit XML, Markdown, a page."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from lab.errors import LabError
from lab.features.compare.baseline import Baseline
from lab.features.compare.compare import baseline_title, change_lines
from lab.features.suite.cases import Attempt, Kind, Outcome, SuiteResult, rates
from lab.features.suite.view import rate_text, suite_rows
from lab.record.record_files import open_log
from lab.record.result import Result
from lab.report.harmless import harmless, in_markdown, plain
from lab.report.style import STATUSES
from lab.report.table import MANY, alike, form_of
from lab.words import capital, clip, format_duration, name_ranks, plural

_LONGEST_REASON = 300
_LONGEST_TRACEBACK = 3000
_MOST_TOLD = 50
"""A job page holds 1 MiB; so many failures are told there with their tracebacks."""
_LAST_LINES = 20
_MOST_BYTES = 1 << 16
"""So much of the end of a log is looked at."""


# -- Markdown, for the page of a CI job


def suite_markdown(found: SuiteResult, compared: Baseline | None = None) -> str:
    """The whole page: the sum, what did not pass and why, a table, and what is worse than before."""
    return "\n\n".join([*_blocks(found), *(_compared_blocks(compared) if compared is not None else ())]) + "\n"


def _compared_blocks(compared: Baseline) -> Iterator[str]:
    yield f"### {in_markdown(capital(baseline_title(compared)))}"
    for case in compared.cases:
        if case.changed:
            lines = [f"  - {in_markdown(clip(line, _LONGEST_REASON))}" for line in change_lines(case)]
            yield "\n".join([f"- {'✘' if case.worse else '·'} {in_markdown(case.name)}", *lines])


def _blocks(found: SuiteResult) -> Iterator[str]:
    counts = ", ".join(f"{STATUSES[status].sign} {count} {status}" for status, count in found.counts.items())
    yield f"## {counts or 'nothing ran'}"
    seed = f", seed {found.seed}" if found.seed is not None else ""
    cases, clusters = plural(found.planned, "case"), plural(found.clusters, "cluster")
    yield f"{cases} in {format_duration(found.duration_s)} on {clusters}{seed}"
    if found.not_run:
        yield f"**{plural(found.not_run, 'case')} did not run: {in_markdown(found.stopped)}**"
    bad = found.told_one_by_one
    for outcome in bad[:_MOST_TOLD]:
        yield from _failure_blocks(outcome)
    if len(bad) > _MOST_TOLD:
        yield f"… and {len(bad) - _MOST_TOLD} more"
    head, rows = suite_rows(found.outcomes)
    if found.repeated:
        head = ["case", "how often", "in which ways"]
        rows = [[rate.name, rate_text(rate), "; ".join(map(_way, rate.kinds))] for rate in rates(found.outcomes)]
    table = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    yield "\n".join(table + [f"| {' | '.join(map(in_markdown, row))} |" for row in rows])


def _failure_blocks(outcome: Outcome) -> Iterator[str]:
    sign, result = STATUSES[outcome.status].sign, outcome.telling.result
    yield f"### {in_markdown(sign)} {in_markdown(outcome.case.id)} {outcome.status}"
    yield in_markdown(clip(outcome.reason, _LONGEST_REASON))
    culprit = result.culprit
    if culprit is not None:
        yield f"Culprit: {in_markdown(culprit.who)}: {in_markdown(clip(culprit.error, _LONGEST_REASON))}"
        if culprit.traceback:
            yield "\n".join(f"    {plain(line)}" for line in culprit.traceback[-_LONGEST_TRACEBACK:].splitlines())
    if result.path is not None:
        yield f"Record: {in_markdown(str(result.path))}"


def _way(kind: Kind) -> str:
    way = f"{kind.count} x {kind.status}: {clip(kind.reason, _LONGEST_REASON)}"
    seeds = f"{', '.join(map(str, kind.seeds[:5]))}{', …' if len(kind.seeds) > 5 else ''}"
    return f"{way} (seeds {seeds})" if kind.seeds else way


# -- JUnit XML
#
# The elements and attributes are those of Jenkins' `junit-10.xsd` and no others. There a test case has no properties:
# so the records stand in those of the suite, by the name of the case, and again where its output begins.


def junit_xml(found: SuiteResult, began: float, compared: Baseline | None = None) -> str:
    """The whole file; `began`: the Unix time at which the suite did; `compared` is a suite of its own."""
    counts = found.counts
    numbers = {
        "tests": str(len(found.outcomes)),
        "failures": str(counts.get("failed", 0) + counts.get("hung", 0)),
        "errors": str(counts.get("error", 0)),
        "time": f"{found.duration_s:.3f}",
    }
    whole = Element("testsuites", {"name": "lab", **numbers})
    suite = SubElement(whole, "testsuite", {"name": "lab test", **numbers, "skipped": str(counts.get("skipped", 0))})
    suite.set("timestamp", time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(began)))
    known = {
        "suite": found.suite,
        "clusters": str(found.clusters),
        "seed": str(found.seed) if found.seed is not None else "",
        "not run": f"{found.not_run}: {found.stopped}" if found.not_run else "",
    }
    for outcome in found.outcomes:
        if outcome.attempts and outcome.attempts[-1].result.path is not None:
            known[f"record of {outcome.case.id}"] = str(outcome.attempts[-1].result.path)
    properties = SubElement(suite, "properties")
    for name, value in known.items():
        if value:
            SubElement(properties, "property", {"name": _text(name), "value": _text(value)})
    for outcome in found.outcomes:
        _add_case(suite, outcome)
    if compared is not None:
        _add_compared(whole, compared)
    indent(whole)
    xml: bytes = tostring(whole, encoding="utf-8", xml_declaration=True)
    return xml.decode() + "\n"


def _add_case(suite: Element, outcome: Outcome) -> None:
    case, folder = outcome.case, outcome.case.scenario.script.parent.name
    attributes = {"name": _text(case.id), "classname": _text(folder or "lab"), "time": f"{outcome.took_s:.3f}"}
    element = SubElement(suite, "testcase", attributes)
    if not outcome.attempts:
        SubElement(element, "skipped", {"message": _text(case.skipped)})
        return
    *earlier, last = outcome.attempts
    result = last.result
    if not result.passed:
        _explain(SubElement(element, "error" if result.verdict == "error" else "failure"), last)
    for attempt in earlier:
        word = "Error" if attempt.result.verdict == "error" else "Failure"
        _explain(SubElement(element, f"{'flaky' if result.passed else 'rerun'}{word}"), attempt)
    head = [f"record: {result.path}"] if result.path is not None else []
    head += [f"seed: {case.seed}"] if case.seed is not None else []
    SubElement(element, "system-out").text = _text("\n".join([*head, *last_lines(result)]))


def _explain(element: Element, attempt: Attempt) -> None:
    result = attempt.result
    element.set("type", result.verdict)
    element.set("message", _text(result.reason))
    lines = [result.reason]
    if result.culprit is not None:
        lines += [f"culprit: {result.culprit.who}: {result.culprit.error}", result.culprit.traceback]
    lines += [expectation.sentence() for expectation in result.unmet]
    lines += [f"hint: {attempt.hint}" if attempt.hint else "", f"record: {result.path}" if result.path else ""]
    element.text = _text("\n".join(filter(None, lines)))


def _add_compared(whole: Element, compared: Baseline) -> None:
    """What is worse than before, as tests that failed."""
    suite = SubElement(whole, "testsuite", {"name": _text(f"compared with {compared.name}"), "errors": "0"})
    for element in (whole, suite):
        for name, number in (("tests", len(compared.cases)), ("failures", sum(case.worse for case in compared.cases))):
            element.set(name, str(int(element.get(name, "0")) + number))
    for case in compared.cases:
        test = SubElement(suite, "testcase", {"name": _text(case.name), "classname": "baseline", "time": "0"})
        lines = change_lines(case)
        if case.worse:
            SubElement(test, "failure", {"type": "worse", "message": _text(lines[0])}).text = _text("\n".join(lines))
        elif lines:
            SubElement(test, "system-out").text = _text("\n".join(lines))


def _text(text: str) -> str:
    """The text without what XML cannot hold, or what acts where it is shown."""
    return harmless(text, colours=False)


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


# -- all files


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
    if html is not None:  # one page of all runs, which leads to the report of each
        from lab.features.records.records import Suite
        from lab.features.suite.page import write_suite
        from lab.record.read import Record

        results = [attempt.result for outcome in found.outcomes for attempt in outcome.attempts]
        records = tuple(Record(path=result.path) for result in results if result.path is not None)
        if not records:
            sys.stderr.write(f"  {html} is not written: no run left a record\n")
            return
        planned = sum(not outcome.case.skipped for outcome in found.outcomes) + found.not_run
        page = write_suite(Suite(name=found.suite, records=records, planned=planned), html)
        sys.stderr.write(f"  written: {page.path}\n")


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}", "name another file") from error
    sys.stderr.write(f"  written: {path}\n")
