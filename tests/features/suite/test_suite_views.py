"""A suite as text, as JUnit XML, as Markdown; and as it goes on."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import IO
from xml.etree import ElementTree as ET

import pytest

from lab.features.suite.cases import SuiteResult
from lab.features.suite.view import SuiteDisplay, again_line, junit_xml, outcome_line, suite_markdown, suite_text
from lab.report.style import Style
from tests.features.suite.cases import attempt, case, culprit, outcome, rank_with_log, suite
from tests.golden import golden
from tests.report.test_live import Terminal

PLAIN = Style(colour=False)
HOSTILE = "</failure>\x1b[31m\x00`|*<b>]]>\u202e&amp; @all ![x](y)\nsecond line"
SCHEMA = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "group", "time", "skipped", "timestamp", "hostname", "id", "package",
         "file", "log", "url"},
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
    ),
    "properties": (set(), {"property"}),
    "property": ({"name", "value"}, set()),
    "testcase": (
        {"name", "time", "classname", "group"},
        {"skipped", "error", "failure", "rerunFailure", "rerunError", "flakyFailure", "flakyError", "system-out",
         "system-err"},
    ),
    "failure": ({"type", "message"}, set()),
    "error": ({"type", "message"}, set()),
    "skipped": ({"type", "message"}, set()),
    "rerunFailure": ({"type", "message"}, set()),
    "flakyFailure": ({"type", "message"}, set()),
    "rerunError": ({"type", "message"}, set()),
    "flakyError": ({"type", "message"}, set()),
    "system-out": (set(), set()),
}  # fmt: skip
"""Attributes and children of each element, by the rules of Jenkins' junit-10.xsd."""
REQUIRED = {
    "testsuite": {"name", "tests", "failures", "errors"},
    "testcase": {"name"},
    "property": {"name", "value"},
    **{key: {"type"} for key in ("rerunFailure", "rerunError", "flakyFailure", "flakyError")},
}


@pytest.fixture
def every_kind(tmp_path: Path) -> SuiteResult:
    """A suite with an outcome of every kind, hostile words among them."""
    ranks = (rank_with_log(tmp_path / "log0", HOSTILE), rank_with_log(tmp_path / "log1", "x\n" * 500, 1))
    failed = attempt("failed", HOSTILE, culprit=culprit(error=HOSTILE, traceback=HOSTILE), ranks=ranks, path=tmp_path)
    return suite(
        outcome(attempt(ranks=ranks, path=tmp_path / "record", run="record"), name="passes"),
        outcome(failed, name="fails"),
        outcome(failed, attempt(), name="flaky", seed=7),
        outcome(attempt("error", "no room", hint="make some"), attempt("hung", "rank 1 did not come"), name="hangs"),
        outcome(attempt("error", "no image"), name="error"),
        outcome(name="skipped", skipped="it has expectations for rank 2"),
        planned=8,
        stopped="interrupted",
        stop_code=130,
        seed=7,
        clusters=2,
        duration_s=12.5,
    )


def follows_the_schema(element: ET.Element) -> None:
    attributes, children = SCHEMA[element.tag]
    assert set(element.keys()) <= attributes, element.tag
    assert REQUIRED.get(element.tag, set()) <= set(element.keys()), element.tag
    for child in element:
        assert child.tag in children, f"{child.tag} in {element.tag}"
        follows_the_schema(child)


def test_junit_follows_the_schema_of_jenkins_and_counts_right(every_kind: SuiteResult):
    whole = ET.fromstring(junit_xml(every_kind))
    follows_the_schema(whole)
    (found,) = whole
    assert (found.get("tests"), found.get("failures"), found.get("errors"), found.get("skipped")) == (
        "6",
        "2",
        "1",
        "1",
    )
    assert found.get("timestamp") == "1970-01-01T00:00:00"
    tags = {one.get("name"): [child.tag for child in one] for one in found.iter("testcase")}
    assert tags == {
        "passes": ["system-out"],
        "fails": ["failure", "system-out"],
        "flaky": ["flakyFailure", "system-out"],
        "hangs": ["failure", "rerunError", "system-out"],
        "error": ["error", "system-out"],
        "skipped": ["skipped"],
    }


def test_junit_leads_to_the_records_and_has_the_last_lines_of_each_rank(every_kind: SuiteResult, tmp_path: Path):
    whole = ET.fromstring(junit_xml(every_kind))
    properties = {one.get("name"): one.get("value") for one in whole.iter("property")}
    assert properties["record of passes"] == str(tmp_path / "record")
    assert properties["seed"] == "7"
    assert properties["not run"] == "2: interrupted"
    output = next(one for one in whole.iter("system-out")).text or ""
    assert output.startswith(f"record: {tmp_path / 'record'}\n--- rank 0 on node0\n")
    assert output.count("x\n") < 25
    assert golden(1) in output


def test_what_xml_cannot_hold_is_written_out(every_kind: SuiteResult):
    text = junit_xml(every_kind)
    assert "\x1b" not in text
    assert "\x00" not in text
    message = next(ET.fromstring(text).iter("failure")).get("message") or ""
    assert message.startswith("</failure>\\x1b[31m\\x00`|*<b>]]>")


def test_markdown_says_what_did_not_pass_and_nothing_in_it_acts(every_kind: SuiteResult):
    text = suite_markdown(every_kind)
    assert text.startswith(golden(1))
    assert golden(2) in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    outside = [line for line in text.splitlines() if not line.startswith("    ")]
    assert not any("<b>" in line.replace("\\<", "") or "![" in line for line in outside)
    assert len([line for line in outside if line.startswith("| ")]) == 1 + 6


def test_a_table_row_of_markdown_is_one_line(tmp_path: Path):
    text = suite_markdown(suite(outcome(attempt(), name="a|b\nc")))
    assert golden(1) in text


def test_rates_are_told_instead_of_single_failures():
    found = suite(
        *(outcome(attempt("failed", "it broke"), repetition=n, repetitions=3, seed=n) for n in (1, 2)),
        outcome(attempt(), repetition=3, repetitions=3, seed=3),
        seed=1,
    )
    for text in (suite_text(found, PLAIN), suite_markdown(found).replace("\\", "")):
        assert golden(1) in text
        assert text.count("it broke") == 1
        assert "seeds 1, 2" in text


def test_failures_are_told_in_short_and_then_all_in_a_table(every_kind: SuiteResult):
    text = suite_text(every_kind, PLAIN)
    parts = text.split("\n\n")
    assert [part.split()[2] for part in parts[:4]] == ["fails", "flaky", "hangs", "error"]
    assert golden(1) in parts[0]
    assert parts[-2].splitlines()[0].split() == ["case", "result", "ranks", "time", "attempts", "record"]
    assert len(parts[-2].splitlines()) == 7
    assert parts[-1].splitlines() == [
        golden(2),
        golden(3),
        golden(4),
        "seed: 7",
    ]


def test_of_a_long_suite_only_what_did_not_pass_is_in_the_table():
    found = suite(*(outcome(attempt(), name=f"c{n}") for n in range(100)), outcome(attempt("failed", "r"), name="bad"))
    assert len(suite_text(found, PLAIN).split("\n\n")[-2].splitlines()) == 2


def test_a_line_for_each_case_as_it_ends():
    assert outcome_line(outcome(attempt()), 3, 12, PLAIN) == golden(1)
    assert outcome_line(outcome(skipped="why"), 1, 2, PLAIN) == "[1/2] - skipped  train  why"
    assert again_line(case(), 1, 3, attempt("hung", "r"), PLAIN) == golden(2)


def watched(out: io.StringIO, status: IO[str], **more: bool) -> None:
    with SuiteDisplay(out, status, **more) as display:
        display.begins("2 clusters: why", 2, 2)
        display.announce(1, "starting 3 nodes")
        display.announce(1, "removed what was left")
        display.working(1, "runs", case("one"))
        display.tick()
        display.ended(outcome(attempt(), name="one"), 1)
        display.again(case("two"), 1, 2, attempt("failed", "r"))
        display.ended(outcome(attempt("failed", "r"), name="two"), 2)


def test_in_a_pipe_a_suite_is_plain_lines():
    out, status = io.StringIO(), io.StringIO()
    watched(out, status)
    assert out.getvalue().splitlines() == [
        "2 clusters: why",
        golden(1),
        golden(2),
        golden(3),
        "[2/2] ✘ failed  two  r",
    ]
    assert status.getvalue() == ""


def test_with_data_on_standard_output_the_lines_go_beside_it():
    out, status = io.StringIO(), io.StringIO()
    watched(out, status, machine=True)
    assert [json.loads(line)["id"] for line in out.getvalue().splitlines()] == ["one", "two"]
    assert "[2/2]" in status.getvalue()


def test_a_quiet_suite_tells_what_did_not_pass():
    out = io.StringIO()
    watched(out, io.StringIO(), quiet=True)
    assert [line.split()[0] for line in out.getvalue().splitlines()] == ["removed", "✘", "[2/2]"]


def test_on_a_terminal_every_worker_has_a_line_above_the_number_of_cases():
    terminal = Terminal(40)
    watched(io.StringIO(), terminal.stream)
    terminal.screen()
    assert re.search(r"  1 +0 s +runs one", terminal.written)
    assert "0/2" in terminal.written
