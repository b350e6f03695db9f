"""One page for a suite, and one for two runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lab.cli.main import main
from lab.errors import RecordError
from lab.features.compare.page import write_diff
from lab.features.html import REPORT
from lab.features.records.records import find_suite
from lab.features.suite.page import write_suite
from lab.record.layout import PLAN
from tests.browser.runs import failed, hostile, suite, training
from tests.features.html.test_html_report import page_data
from tests.golden import golden
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


def test_the_latest_suite_has_all_its_runs_in_their_order(tmp_path: Path) -> None:
    made = suite(tmp_path)
    training(tmp_path / "20260101-000009-alone")
    assert [record.run for record in find_suite(None, tmp_path).records] == [record.run for record in made]
    assert find_suite(made[1].run, tmp_path).records == find_suite(None, tmp_path).records
    assert find_suite(str(made[1].path)).planned == 4


@pytest.mark.parametrize("name", [None, "alone"])
def test_a_run_that_was_made_alone_is_of_no_suite(tmp_path: Path, name: str | None) -> None:
    training(tmp_path / "20260101-000009-alone")
    with pytest.raises(RecordError, match="of a suite"):
        find_suite(name, tmp_path)


def test_a_damaged_plan_is_of_no_suite(tmp_path: Path) -> None:
    made = suite(tmp_path)
    (made[0].path / PLAN).write_text('{"turn": {"suite": 5, "number": "x"}}')
    assert len(find_suite(None, tmp_path).records) == 2


def test_the_page_leads_to_the_report_of_each_run_and_says_what_is_missing(tmp_path: Path) -> None:
    made = suite(tmp_path / "runs")
    report = write_suite(find_suite(None, tmp_path / "runs"))
    html = report.path.read_text()
    assert report.path == tmp_path / "runs" / "suite.html"
    assert report.verdicts == {"passed": 1, "failed": 1, "hung": 1}
    for record in made:
        assert f'href="{record.run}/{REPORT}"' in html
        assert (record.path / REPORT).exists()
    assert golden(1) in html
    elsewhere = write_suite(find_suite(None, tmp_path / "runs"), tmp_path / "page.html")
    assert f'href="runs/{made[0].run}/{REPORT}"' in elsewhere.path.read_text()


def test_reports_that_are_as_new_as_their_results_are_not_written_again(tmp_path: Path) -> None:
    first, *_ = suite(tmp_path)
    write_suite(find_suite(None, tmp_path))
    page = first.path / REPORT
    page.write_text("mine")
    write_suite(find_suite(None, tmp_path))
    assert page.read_text() == "mine"
    os.utime(page, (0, 0))
    write_suite(find_suite(None, tmp_path))
    assert page.read_text() != "mine"


def test_nothing_of_what_ranks_say_is_markup_in_a_suite_or_a_diff(tmp_path: Path) -> None:
    attack = "</script><img src=x onerror=alert(1)>"
    record = hostile(tmp_path / "20260101-000000-x", attack)
    plan = json.loads((record.path / PLAN).read_text())
    (record.path / PLAN).write_text(json.dumps({**plan, "turn": {"suite": attack, "number": 1, "of": 1}}))
    pages = [write_suite(find_suite(None, tmp_path)).path, write_diff(record, training(tmp_path / "other")).path]
    for page in pages:
        html = page.read_text()
        assert attack not in html
        assert "<img" not in html


def test_two_runs_have_their_calls_marked_and_their_steps_put_together(tmp_path: Path) -> None:
    for name, more in (("before", False), ("after", True)):
        maker = TraceMaker(tmp_path / name, 2)
        for rank in (0, 1):
            maker.call(rank, "all_reduce", 10, 20, [[1.0]], [[2.0]])
            if more:
                maker.call(rank, "broadcast", 30, 35, [[1.0]], [[1.0]], root=0)
            maker.call(rank, "barrier", 40, 80 if more else 50)
        record = maker.record(result={"verdict": "passed", "run": name})
    before = record.__class__(path=tmp_path / "before")
    report = write_diff(before, record)
    html = report.path.read_text()
    data = page_data(html)
    assert data["pairs"] == [[1, 1], [2, 3]]
    assert [run["calls"]["differs"] for run in data["runs"]] == [[0, 0, 0, 0], [0, 1, 0, 0, 1, 0]]
    assert not report.identical
    assert write_diff(before, before, tmp_path).identical


def test_the_command_writes_a_suite_and_a_diff(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made = suite(tmp_path / ".lab" / "runs")
    assert main(["report", "--suite", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == [record.run for record in made]
    failed(tmp_path / ".lab" / "runs" / "20260101-000007-other")
    assert main(["report", "--diff", "train", "other"]) == 0
    assert "diff.html" in capsys.readouterr().out
    assert main(["report", "train", "--diff", "train", "other"]) == 2
    assert "a third" in capsys.readouterr().err
