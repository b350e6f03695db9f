"""The end of what each rank printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.features.pytest.items import last_lines_text
from lab.record.result import Culprit, RankResult, Result
from tests.golden import golden

RAISED = "[rank1]: Traceback (most recent call last):\n[rank1]:   File ...\n[rank1]: ValueError: bad\n"


@pytest.fixture
def result(tmp_path: Path) -> Result:
    ranks = []
    for rank, text in enumerate(["", f"hello\n{RAISED}", f"there\n{RAISED}", "\n".join(map(str, range(20)))]):
        (tmp_path / f"{rank}.log").write_text(text)
        ranks.append(RankResult(rank=rank, node=f"node{rank}", log_path=tmp_path / f"{rank}.log"))
    return Result(verdict="failed", ranks=tuple(ranks), culprit=Culprit(rank=1, traceback="Traceback ..."))


def test_each_rank_shows_its_last_lines_and_of_a_traceback_the_error_unless_the_verdict_shows_it(result: Result):
    assert last_lines_text(result).splitlines() == [
        golden(1),
        "  │ hello",
        golden(2),
        "  │ there",
        "  │ [rank1]: ValueError: bad",
        golden(3),
        *(f"  │ {line}" for line in range(12, 20)),
    ]


def test_of_much_output_only_the_end_is_read(result: Result):
    path = result.ranks[0].log_path
    assert path is not None
    path.write_text("x" * 100_000 + "\nend\n")
    assert last_lines_text(result).splitlines()[:2] == [golden(1), "  │ end"]


def test_of_runs_without_output_nothing_is_said():
    assert last_lines_text(Result(verdict="hung", ranks=(RankResult(rank=0),))) == ""
