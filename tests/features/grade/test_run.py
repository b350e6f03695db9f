"""A submission runs once more on new nodes where its check broke off; what came of it then counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.diagnosis.facts import RankFacts, RunFacts
from lab.features.grade import run
from lab.features.grade.run import Grader
from lab.record.result import Result
from lab.run.cluster_slot import RunAttempt
from lab.run.options import RunOptions

ENDED = RankFacts(rank=-1, ended=1.0, code=1, error="AssertionError: wrong")
CUT = RankFacts(rank=-1, ended=1.0, error="the check did not end within 1m")


class Slot:
    """Stands for a cluster: counts its runs, and how often it is made anew."""

    runs = cleared = 0

    def attempt(self, *_: Any) -> RunAttempt:
        self.runs += 1
        return RunAttempt(result=Result(verdict="failed", path=Path("record")))

    def is_last(self, _: RunAttempt) -> bool:
        return False

    def clear(self) -> None:
        self.cleared += 1


@pytest.mark.parametrize(
    ("checks", "runs", "met_last"), [((ENDED,), 1, ENDED), ((CUT, ENDED), 2, ENDED), ((CUT, CUT), 2, CUT)]
)
def test_a_check_that_broke_off_is_made_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checks: tuple[RankFacts, ...], runs: int, met_last: RankFacts
) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.py", "in/a.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "a.yaml").write_text("script: a.py\n")
    rank = RankFacts(rank=0, started=0.0, ended=0.5, code=0)
    facts = iter([RunFacts(ranks=[rank], check=check) for check in checks])
    monkeypatch.setattr(run, "read_facts", lambda _: next(facts))
    monkeypatch.setattr(run, "open_isolating_engine", lambda *_, **__: "docker")
    how: Any = {
        "trust": False,
        "requested": {},
        "options": RunOptions(),
        "jobs": 1,
        "announce": print,
        "on_graded": print,
    }
    grader = Grader(tmp_path / "in", tmp_path / "a.yaml", "auto", **how)
    slot: Any = Slot()

    found: Any = grader._run(grader.assignment, slot)

    assert (slot.runs, slot.cleared) == (runs, sum(check is CUT for check in checks))
    assert found[1].check is met_last
