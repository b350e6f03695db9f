"""A suite as JUnit XML, as Jenkins, GitLab and others read it.

The elements and attributes are those of Jenkins' `junit-10.xsd` and no others: there a test case has no properties, so
the records stand in those of the suite, by the name of the case, and again where its output begins.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent

from lab.features.compare.baseline import Baseline
from lab.features.compare.compare import change_lines
from lab.features.suite.outcome import Attempt, Outcome, SuiteResult
from lab.record.record_files import open_file
from lab.record.result import Result, split_log_path
from lab.report.alike import rarest_first
from lab.report.harmless import harmless
from lab.words import name_ranks

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
        _compared(whole, compared)
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


def _compared(whole: Element, compared: Baseline) -> None:
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
    printed: list[tuple[int, list[str]]] = []
    nodes, cut = {}, set()
    for rank in (*result.parents, *(rank for rank in result.ranks if rank.parent is None)):
        if rank.log_path is None:
            continue
        try:
            opened = open_file(*split_log_path(rank.log_path))
        except OSError:
            continue
        with opened as log:
            log.seek(max(0, log.seek(0, 2) - _MOST_BYTES))
            lines = log.read().decode("utf-8", "replace").splitlines()
        nodes[rank.rank] = rank.node
        cut |= {rank.rank} if len(lines) > most else set()
        if lines:
            printed.append((rank.rank, lines[-most:]))
    for ranks, shown in rarest_first(printed):
        who = f"rank {ranks[0]} on {nodes[ranks[0]]}"
        alike = f", as {name_ranks(ranks[1:])}" if len(ranks) > 1 else ""
        yield f"--- {who}{alike}{f', last {most} lines' if ranks[0] in cut else ''}"
        yield from shown


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"


def _text(text: str) -> str:
    """The text without what XML cannot hold, or what acts where it is shown."""
    return harmless(text, colours=False)
