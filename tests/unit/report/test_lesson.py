"""The answer of a lesson."""

from __future__ import annotations

from pathlib import Path

from lab.record.result import Expectation, Result
from lab.report.lesson import answer_text
from lab.report.style import Style
from tests.unit.traces import TraceMaker


def test_a_lesson_about_calls_shows_what_ranks_called(tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run")
    for rank in range(2):
        maker.call(rank, "all_reduce", rank, 5, [[1.0]], [[2.0]], red="SUM")
    stated = Expectation(what="calls", rank=0, expected="as stated", got="as stated: 1 call", met=True)
    result = Result(
        verdict="passed", reason="all is well", scenario="s", run="run", engine="local", cluster="c",
        path=maker.record().path, expectations=(stated,),
    )  # fmt: skip

    answer = answer_text(result, "two", Style(colour=False))

    assert answer.splitlines()[:5] == [
        "you predicted  two",
        "",
        "what ranks called",
        "  - all_reduce SUM float32[1]",
        "",
    ]
