"""What is worse than in earlier runs, as text, as JUnit XML and as Markdown."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from lab.features.compare.baseline import Baseline, CaseChange, Increase
from lab.features.compare.compare import baseline_text
from lab.features.suite.view import junit_xml, suite_markdown
from lab.report.style import Style
from tests.features.suite.cases import attempt, outcome, suite
from tests.features.suite.test_suite_views import HOSTILE, follows_the_schema
from tests.golden import golden


@pytest.fixture
def compared() -> Baseline:
    """One case that is as before, one that may be slower, one that is worse in every way."""
    known = {"runs": (("a",), ("b",)), "increases": (), "calls": (), "notes": ()}
    worse = CaseChange(
        name=f"tree {HOSTILE}",
        runs=(("a",), ("b",)),
        times_s=((1.0, 1.1, 1.2), (2.0, 2.1, 2.2)),
        speed="slower",
        increases=(Increase(op="all_reduce", calls=(2, 3), bytes=(128, 256)),),
        calls=tuple(f"{HOSTILE} {i}" for i in range(20)),
        notes=(),
    )
    return Baseline(
        name="main",
        cases=(
            CaseChange(name="same", times_s=((1.0,), (1.0,)), speed="", **known),  # type: ignore[arg-type]
            CaseChange(name="slow", times_s=((1.0,), (3.0,)), speed="perhaps slower", **known),  # type: ignore[arg-type]
            worse,
        ),
        new=tuple("abcdefg"),
    )


def test_the_text_says_what_is_worse_and_what_may_be(compared: Baseline) -> None:
    lines = baseline_text(compared, Style(colour=False)).splitlines()
    assert lines[0] == golden(1)
    assert lines[1:3] == [
        "· slow",
        golden(2),
    ]
    assert golden(3) in lines
    assert golden(4) in lines
    assert golden(5) in lines
    assert compared.exit_code == 1
    assert [case["worse"] for case in compared.to_json()["cases"]] == [False, False, True]


def test_junit_has_a_suite_of_its_own_in_which_what_is_worse_failed(compared: Baseline) -> None:
    whole = ET.fromstring(junit_xml(suite(outcome(attempt("failed", "no"))), compared))
    follows_the_schema(whole)
    _, second = whole
    assert (whole.get("tests"), whole.get("failures")) == ("4", "2")
    assert (second.get("name"), second.get("tests"), second.get("failures")) == ("compared with main", "3", "1")
    assert [[child.tag for child in case] for case in second] == [[], ["system-out"], ["failure"]]
    message = next(second.iter("failure")).get("message") or ""
    assert message.startswith("slower: 1.1 s → 2.1 s")


def test_markdown_has_a_section_in_which_nothing_acts(compared: Baseline) -> None:
    text = suite_markdown(suite(outcome(attempt())), compared)
    assert golden(1) in text
    assert golden(2) in text
    assert "- same" not in text
    for hostile in ("\x1b", "\u202e", "![", "<b>", "\nsecond line"):
        assert hostile not in text.replace("\\<b\\>", "")
