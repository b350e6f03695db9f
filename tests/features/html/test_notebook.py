"""What a notebook shows of a result."""

from __future__ import annotations

import re
from pathlib import Path

from lab.record.result import Culprit, Expectation, RankResult, Result
from tests.golden import golden
from tests.traces import TraceMaker

ONE = [1.0]


def made(path: Path | None, **more: object) -> Result:
    ranks = tuple(RankResult(rank=rank, node=f"node{rank}", local_rank=0, notes={"sum": rank}) for rank in range(2))
    fields = {"verdict": "passed", "reason": "all is well", "ranks": ranks, **more}
    return Result(scenario="train", run="run-1", engine="local", cluster="c", path=path, **fields)  # type: ignore[arg-type]


def traced(folder: Path) -> Path:
    maker = TraceMaker(folder / "run")
    for rank in range(2):
        maker.call(rank, "all_reduce", rank, 5, [ONE], [[2.0]], red="SUM")
        maker.call(rank, "barrier", 6, 7)
    return maker.record().path


def test_a_result_shows_verdict_notes_timeline_and_pictures(tmp_path: Path) -> None:
    html = made(traced(tmp_path))._repr_html_()
    assert "✔ passed" in html
    assert "all is well" in html
    assert "<td" in html
    assert 'aria-label="Timeline of 2 ranks"' in html
    assert re.findall(r"<summary[^>]*>([^<]*)</summary>", html) == ["Notes", "Timeline", "Step 1: all_reduce #1"]


def test_there_are_no_scripts_and_no_style_sheets_in_it(tmp_path: Path) -> None:
    html = made(traced(tmp_path))._repr_html_()
    assert not re.search(r"<script|<style|<link|\son\w+=|javascript:|https?://(?!www\.w3\.org)", html)


def test_a_failure_shows_the_culprit_and_what_was_expected(tmp_path: Path) -> None:
    culprit = Culprit(rank=1, node="node1", error="ValueError: no", traceback="Traceback\nValueError: no")
    unmet = Expectation(what="note sum", rank=0, expected=3, got=0, met=False)
    html = made(None, verdict="failed", reason="it broke", culprit=culprit, expectations=(unmet,))._repr_html_()
    assert "✘ failed" in html
    assert "<b>First culprit: rank 1 on node1</b>" in html
    assert "ValueError: no" in html
    assert golden(1) in html


def test_what_ranks_say_is_text_and_never_markup(tmp_path: Path) -> None:
    bad = "<script>alert(1)</script>"
    rank = RankResult(rank=0, node="node0", local_rank=0, notes={bad: bad})
    html = made(None, verdict="failed", reason=bad, ranks=(rank,))._repr_html_()
    assert bad not in html
    assert html.count("&lt;script&gt;") == 3


def test_a_result_whose_record_is_gone_still_shows_itself(tmp_path: Path) -> None:
    assert "all is well" in made(tmp_path / "gone")._repr_html_()
    (tmp_path / "empty").mkdir()
    assert "all is well" in made(tmp_path / "empty")._repr_html_()
