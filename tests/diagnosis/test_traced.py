"""Verdicts that need the trace: made traces beside the facts that agents tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab.diagnosis.evidence import Evidence, Judgement
from lab.diagnosis.facts import RankFacts, RunFacts
from lab.diagnosis.judge import judge_evidence
from tests.diagnosis import facts as told
from tests.golden import golden
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit
PEER = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]:7"


@pytest.fixture
def made(tmp_path: Path) -> TraceMaker:
    return TraceMaker(tmp_path / "run", 3)


def judged(made: TraceMaker, facts: RunFacts) -> Judgement:
    record = made.record(stop=False)
    return judge_evidence(Evidence(facts=facts, record=record))


def hung(made: TraceMaker, *stacks: dict[str, str]) -> Judgement:
    told.hang(made, *stacks)
    ranks = [replace(stopped(number, stack["text"]), stack_time=1_700_000_030.0) for number, stack in enumerate(stacks)]
    return judged(made, RunFacts(ranks=ranks, timeout_s=30.0, timed_out=True))


def stopped(number: int, stack: str = "") -> RankFacts:
    end = {"ended": 11.0, "signal": "SIGKILL", "stopped": True}
    return RankFacts(rank=number, node=f"node{number}", local_rank=0, started=0.0, stack=stack, **end)


def raised(number: int, error: str, at: float) -> RankFacts:
    return RankFacts(rank=number, node=f"node{number}", local_rank=0, started=0.0, ended=at + 0.1, code=1, error=error,
                     raised=at, traceback=f"Traceback (most recent call last):\n{error}\n")  # fmt: skip


@pytest.mark.features
def test_three_ranks_in_three_places_have_a_culprit_if_two_of_them_called_the_same(made: TraceMaker) -> None:
    for rank, (op, line) in enumerate((("all_reduce", 5), ("all_reduce", 7), ("reduce", 9))):
        made.call(rank, op, 1, None, [[1.0]], at=f"train.py:{line}")
    judgement = hung(made, *(told.stack(rank, 5 + 2 * rank, op) for rank, op in enumerate(("a", "b", "c"))))
    assert judgement.culprit is not None
    assert (judgement.culprit.rank, judgement.culprit.node) == (2, "node2")
    assert judgement.reason.startswith(golden(1))


def test_whoever_waits_in_backward_is_not_blamed_for_who_never_came(made: TraceMaker) -> None:
    for rank in (0, 2):
        made.call(rank, "all_reduce", 1, None, [[1.0]], at="train.py:30", **{"async": True})
    backward = {"call": "_engine_run_backward", "inner": "torch/autograd/graph.py"}
    judgement = hung(made, told.stack(0, 30, **backward), told.stack(1, 28), told.stack(2, 30, **backward))
    assert judgement.culprit is not None
    assert judgement.culprit.rank == 1
    assert golden(1) in judgement.reason


def test_a_ring_of_messages_has_no_culprit_even_if_most_stand_at_one_line(made: TraceMaker) -> None:
    for rank in range(3):
        made.call(rank, "recv", 1, None, (), [[0.0]], peer=(rank + 1) % 3, tag=0, at=f"train.py:{4 if rank else 6}")
    judgement = hung(made, *(told.stack(rank, 4 if rank else 6, "recv") for rank in range(3)))
    assert judgement.culprit is None
    assert golden(1) in judgement.reason


def test_where_stacks_and_trace_agree_the_words_are_those_of_the_stacks(made: TraceMaker) -> None:
    for rank in (0, 2):
        made.call(rank, "all_reduce", 1, None, [[1.0]], at="train.py:9")
    judgement = hung(made, told.stack(0, 9, "all_reduce"), told.stack(1, 5), told.stack(2, 9, "all_reduce"))
    assert judgement.reason == golden(1)


@pytest.mark.features
def test_a_failure_in_a_collective_is_blamed_on_the_rank_that_brought_something_else(made: TraceMaker) -> None:
    for rank in range(3):
        made.call(rank, "all_reduce", 1, None, [[1.0] * (5 if rank == 2 else 4)], at="train.py:12")
    ranks = [
        raised(0, "RuntimeError: op.preamble.length <= op.nbytes", 5.0),
        raised(1, PEER, 5.1),
        raised(2, PEER, 5.2),
    ]
    judgement = judged(made, RunFacts(ranks=ranks))
    assert judgement.culprit is not None
    assert judgement.culprit.rank == 2
    assert golden(1) in judgement.reason
    assert golden(2) in judgement.reason


def test_an_error_of_the_scripts_own_is_its_own_fault_whatever_tensors_were_brought(made: TraceMaker) -> None:
    for rank in range(3):
        made.call(rank, "all_reduce", 1, None, [[1.0] * (5 if rank == 2 else 4)], at="train.py:12")
    judgement = judged(made, RunFacts(ranks=[raised(0, "ValueError: mine", 5.0), raised(1, PEER, 5.1)]))
    assert judgement.culprit is not None
    assert judgement.culprit.rank == 0


def test_of_several_that_left_the_one_that_was_needed_is_blamed(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 4)
    made.group("5", [1, 2, 3], 0.5)
    for rank in (2, 3):
        index = made.call(rank, "all_reduce", 1, None, [[1.0]], group="5")
        made.line(rank, "end", 2, i=index, err="Connection closed by peer")
    left = [RankFacts(rank=n, node=f"node{n}", local_rank=0, started=0.0, ended=4.0 + n, code=0) for n in (0, 1)]
    judgement = judged(
        made, RunFacts(ranks=[*left, raised(2, PEER, 6.0), RankFacts(3, "node3", 0, 0.0, 9.0, stopped=True)])
    )
    assert judgement.culprit is not None
    assert judgement.culprit.rank == 1


@pytest.mark.features
def test_causes_that_have_nothing_to_do_with_each_other_are_all_told(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 6)
    for name, ranks in (("5", (0, 1, 2)), ("6", (3, 4, 5))):
        made.group(name, ranks)
        for rank in ranks:
            op = "broadcast" if rank in (2, 3) else "all_reduce"
            made.call(rank, op, 1, None, [[1.0]], group=name, at=f"train.py:{10 + rank}")
    judgement = hung(made, *(told.stack(rank, 10 + rank, "all_reduce") for rank in range(6)))
    assert [(finding.kind, finding.ranks) for finding in judgement.findings] == [("mismatch", (2,)), ("mismatch", (3,))]
    for finding in judgement.findings:
        assert finding.headline in judgement.reason
