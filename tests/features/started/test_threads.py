"""Threads of ranks that ended by an error are told, and where a rank stood after that."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.facts import RankFacts
from lab.diagnosis.judge import judge_evidence
from lab.features.started.started import find_ended_threads
from lab.node.messages.agent import ThreadRaised
from tests.diagnosis.facts import stack, stopped, told_facts, write_events
from tests.golden import golden
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


def raised(rank: int, error: str = "KeyError: 'no such shard'", at: str = "load.py:7") -> ThreadRaised:
    return ThreadRaised(rank, 1_700_000_001.0, f"node{rank}", thread="loader", error=error, at=at)


def test_ranks_whose_threads_raised_the_same_are_told_together() -> None:
    ranks = [RankFacts(rank=rank, threads=[raised(rank)]) for rank in (0, 2)] + [RankFacts(rank=1)]
    (finding,) = find_ended_threads(ranks)
    assert told_facts(finding) == {"raised": {"error": golden(1), "at": "load.py:7"}, "count": 2}
    assert (finding.kind, finding.ranks, finding.others) == ("thread", (), (0, 2))


def test_one_rank_may_have_lost_several_threads_and_errors_of_many_lines_are_told_by_the_first() -> None:
    rank = RankFacts(rank=1, threads=[raised(1, "OSError: a\nb", at=""), raised(1, "OSError: a\nc", at="")])
    (finding,) = find_ended_threads([rank])
    assert told_facts(finding) == {"raised": {"error": "OSError: a"}, "count": 2}


def test_a_rank_that_waits_for_a_thread_that_has_ended_is_told_with_it(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    for rank in (0, 1):
        made.call(rank, "all_reduce", 1000, None, [[1.0]], at="train.py:41")
    (made.path / "train.py").write_text("\n" * 36 + "loaded.wait()\n")
    told = {"event": "thread raised", **raised(2)._asdict()}
    stacks = (stack(0, 41, "all_reduce", 9), stack(1, 41, "all_reduce", 9), stack(2, 37, at=9))
    timed_out = {"event": "timed out", "time": 1_700_000_009.0}
    write_events(made, told, timed_out, *stacks, *map(stopped, range(3)))
    verdict = judge_evidence(read_evidence(made.record(stop=False)))
    assert verdict.culprit is not None
    assert verdict.culprit.rank == 2
    assert golden(1) in verdict.reason
