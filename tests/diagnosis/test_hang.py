"""Who kept the others waiting, from made traces and stacks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.diagnosis.causes import find_causes
from lab.diagnosis.evidence import Judgement, read_evidence
from lab.diagnosis.finding import Finding
from lab.diagnosis.hang import find_progress, judge_hang
from lab.diagnosis.judge import judge_evidence
from lab.record.layout import INDEX
from tests.diagnosis.facts import WORK, exited, hang, stack, stopped, told_facts, write_events
from tests.golden import golden
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


@pytest.fixture
def made(tmp_path: Path) -> TraceMaker:
    made = TraceMaker(tmp_path / "run", 3)
    for rank in range(3):
        made.call(rank, "all_reduce", 1, 2, [[1.0]], [[3.0]], red="SUM", at="train.py:9")
    return made


def causes(made: TraceMaker) -> list[Finding]:
    return find_causes(read_evidence(made.record(stop=False)))


def test_a_rank_that_never_entered_is_named_with_where_it_was_and_how_long_others_waited(made: TraceMaker) -> None:
    for rank in (0, 1):
        made.call(rank, "all_reduce", 1000, None, [[1.0]], red="SUM", at="train.py:41")
    (made.path / "train.py").write_text("\n" * 36 + "time.sleep(99)\n")
    hang(made, stack(0, 41, "all_reduce"), stack(1, 41, "all_reduce"), stack(2, 37))
    [found] = causes(made)
    assert told_facts(found) == {
        "waits": [
            {"rank": 0, "name": "all_reduce #2", "source": "train.py:41"},
            {"rank": 1, "name": "all_reduce #2", "source": "train.py:41"},
        ],
        "missing": [2],
        "did": [
            {
                "rank": 2,
                "what": "stood",
                "stood": {"place": {"file": "train.py", "line": 37, "call": "", "source": "time.sleep(99)"}},
            }
        ],
    }
    assert (found.kind, found.ranks, found.others, found.step) == ("never_entered", (2,), (0, 1), "all_reduce #2")
    assert found.lines == ("train.py:37", "train.py:41")
    assert found.seconds == pytest.approx(7.0)


def judge_at_work(made: TraceMaker, *ranks: int, load: float = 0.0, printed: tuple[float, ...] = ()) -> Judgement:
    """The verdict on ranks that were at line 37 at the time limit, while the others waited."""
    waiting = [rank for rank in range(3) if rank not in ranks]
    for rank in waiting:
        made.call(rank, "all_reduce", 1000, None, [[1.0]], at="train.py:41")
    stacks = [{**stack(rank, 37), "load": load} for rank in ranks]
    stacks += [stack(rank, 41, "all_reduce") for rank in waiting]
    timed_out = {"event": "timed out", "time": 1_700_000_008.0, "timeout_s": 8.0}
    write_events(made, timed_out, *stacks, *map(stopped, range(3)))
    index = [[rank, 1, n, 1, 1_700_000_000.0 + at] for rank in ranks for n, at in enumerate(printed)]
    (made.path / INDEX).write_text("".join(f"{json.dumps(entry)}\n" for entry in index))
    return judge_evidence(read_evidence(made.record(stop=False)))


@pytest.mark.parametrize(
    ("facts", "by"),
    [
        ({"load": 0.9}, "computing"),
        ({"printed": (2.0, 4.0, 6.0)}, "printing"),
        ({"load": 0.05, "printed": (0.0, 0.1, 7.9)}, ""),  # before its last call, and once
        ({"printed": (1.0, 1.5, 2.0)}, ""),
        ({}, ""),
    ],
)
def test_a_rank_that_works_is_not_called_hung(made: TraceMaker, facts: dict[str, Any], by: str) -> None:
    made.line(2, "end", 900, i=1)
    verdict = judge_at_work(made, 2, **facts)
    assert verdict.verdict == ("timeout" if by else "hung")
    assert (verdict.culprit is None) == bool(by)
    if by:
        [found] = verdict.findings
        assert (found.kind, found.ranks, found.lines) == ("out_of_time", (), ("train.py:37",))
        assert f"rank 2 was still {by} at train.py:37, and ranks 0 and 1 waited for it" in verdict.reason


def test_all_ranks_have_to_work_that_others_wait_for(made: TraceMaker) -> None:
    assert judge_at_work(made, 1, 2, load=0.5).verdict == "timeout"
    write_events(made, {"event": "timed out", "time": 1_700_000_008.0}, {**stack(1, 37), "load": 0.5}, stack(2, 38),
                 stack(0, 41, "all_reduce"), *map(stopped, range(3)))  # fmt: skip
    assert judge_evidence(read_evidence(made.record(stop=False))).verdict == "hung"


def test_a_rank_that_called_something_else_is_to_blame_even_if_it_computes(made: TraceMaker) -> None:
    made.call(2, "broadcast", 1000, 1001, [[1.0]], root=2, at="train.py:30")
    verdict = judge_at_work(made, 2, load=1.0)
    assert (verdict.verdict, verdict.culprit is not None and verdict.culprit.rank) == ("hung", 2)


def test_the_forward_of_a_ddp_module_that_computes_is_no_wait(made: TraceMaker) -> None:
    text = (
        'Thread 0x00007f (most recent call first):\n  File "/x/torch/nn/modules/linear.py", line 9 in forward\n'
        f'  File "/x/torch/nn/parallel/distributed.py", line 7 in forward\n  File "{WORK}/train.py", line 15 in main\n'
    )
    stacks = [{**stack(rank, 15), "text": text, "load": 0.6} for rank in range(3)]
    write_events(made, {"event": "timed out", "time": 1_700_000_008.0}, *stacks, *map(stopped, range(3)))
    verdict = judge_evidence(read_evidence(made.record(stop=False)))
    assert verdict.verdict == "timeout"
    assert "ranks 0-2 were still computing in DistributedDataParallel.forward at train.py:15" in verdict.reason


def test_a_rank_that_others_had_hardly_waited_for_is_not_accused(made: TraceMaker) -> None:
    for rank in (0, 1):
        made.call(rank, "all_reduce", 8800, None, [[1.0]], at="train.py:41")
    timed_out = {"event": "timed out", "time": 1_700_000_009.0}
    stacks = (stack(0, 41, "all_reduce", 9), stack(1, 41, "all_reduce", 9), stack(2, 37, at=9))
    write_events(made, timed_out, *stacks, *(stopped(rank) for rank in range(3)))
    evidence = read_evidence(made.record(stop=False))
    evidence.facts.timeout_s = 9.0
    [found] = find_causes(evidence)
    assert (found.kind, found.ranks) == ("out_of_time", ())
    verdict = judge_evidence(evidence)
    assert (verdict.verdict, verdict.culprit) == ("hung", None)
    assert golden(1) in verdict.reason


@pytest.mark.parametrize(("file", "verdict"), [("<frozen importlib._bootstrap>", "timeout"), ("/lib/json.py", "hung")])
def test_a_rank_that_imports_modules_while_others_wait_needs_more_time(
    made: TraceMaker, file: str, verdict: str
) -> None:
    for rank in (0, 1):
        made.call(rank, "all_reduce", 2000, None, [[1.0]], at="train.py:41")
    timed_out = {"event": "timed out", "time": 1_700_000_009.0}
    at_import = stack(2, 37, "_find_and_load", at=9)
    at_import["text"] = at_import["text"].replace("/x/torch/distributed/x.py", file)
    stacks = (stack(0, 41, "all_reduce", 9), stack(1, 41, "all_reduce", 9), at_import)
    write_events(made, timed_out, *stacks, *(stopped(rank) for rank in range(3)))
    evidence = read_evidence(made.record(stop=False))
    evidence.facts.timeout_s = 9.0
    judgement = judge_evidence(evidence)
    assert (judgement.verdict, judgement.culprit is None) == (verdict, verdict == "timeout")
    if verdict == "timeout":
        [found] = judgement.findings
        assert (found.kind, found.others) == ("out_of_time", (2,))
        assert [one.kind for one in find_causes(evidence)] == ["out_of_time"]


def test_of_ranks_that_are_busy_with_themselves_none_is_accused(made: TraceMaker) -> None:
    timed_out = {"event": "timed out", "time": 1_700_000_009.0}
    write_events(made, timed_out, *(stack(rank, 30 + rank) for rank in range(3)), *map(stopped, range(3)))
    verdict = judge_evidence(read_evidence(made.record(stop=False)))
    assert (verdict.verdict, verdict.culprit) == ("hung", None)


def test_a_rank_that_had_ended_with_code_0_left_early(made: TraceMaker) -> None:
    for rank in (0, 1):
        made.call(rank, "all_reduce", 1000, None, [[1.0]], at="train.py:41")
    write_events(made, stack(0, 41, "all_reduce"), stack(1, 41, "all_reduce"), stopped(0), stopped(1), exited(2, at=3))
    [found] = causes(made)
    assert (found.kind, found.ranks) == ("left_early", (2,))
    assert told_facts(found) == {
        "waits": [
            {"rank": 0, "name": "all_reduce #2", "source": "train.py:41"},
            {"rank": 1, "name": "all_reduce #2", "source": "train.py:41"},
        ],
        "missing": [2],
        "did": [
            {
                "rank": 2,
                "what": "left",
                "code": 0,
                "after": {"calls": 1, "name": "all_reduce #1", "source": "train.py:9"},
            }
        ],
    }


def test_a_call_that_fails_because_others_are_stopped_first_still_counts_as_waited_in(made: TraceMaker) -> None:
    for rank in (0, 1):
        made.call(rank, "all_reduce", 1000, 8200, [[1.0]], at="train.py:41", err="Connection closed by peer")
    lost = exited(0, 1, 8.3, error="RuntimeError: Connection closed by peer", raised=1_700_000_008.2)
    timed_out = {"event": "timed out", "time": 1_700_000_008.0}
    stacks = (stack(0, 41, "all_reduce"), stack(1, 41, "all_reduce"), stack(2, 37))
    write_events(made, timed_out, *stacks, lost, stopped(1), stopped(2))
    evidence = read_evidence(made.record(stop=False))
    [found] = find_causes(evidence)
    assert (found.kind, found.ranks, found.others) == ("never_entered", (2,), (0, 1))
    verdict = judge_evidence(evidence)
    assert (verdict.verdict, verdict.culprit and verdict.culprit.rank) == ("hung", 2)


def test_a_rank_that_called_once_more_than_most_went_on_alone(made: TraceMaker) -> None:
    made.call(1, "all_reduce", 1000, None, [[1.0]], at="train.py:41")
    write_events(made, stack(1, 41, "all_reduce"), stopped(1), exited(0, at=3), exited(2, at=3))
    [found] = causes(made)
    assert (found.kind, found.ranks, found.lines) == ("went_alone", (1,), ("train.py:41",))


def test_a_receive_whose_sender_never_sent(made: TraceMaker) -> None:
    made.call(0, "recv", 1000, None, (), [[0.0]], peer=2, tag=0, at="train.py:12")
    hang(made, stack(0, 12, "recv"), stack(1, 30), stack(2, 31))
    [found] = causes(made)
    assert told_facts(found) == {
        "waits": [{"rank": 0, "name": "recv", "source": "train.py:12", "direction": "from", "peer": 2}],
        "missing": [2],
        "message": True,
        "receives": True,
        "did": [{"rank": 2, "what": "stood", "stood": {"place": {"file": "train.py", "line": 31, "call": ""}}}],
    }
    assert (found.kind, found.ranks) == ("never_entered", (2,))


@pytest.mark.parametrize(("op", "advice"), [("recv", "one has to send first"), ("send", "one has to receive first")])
def test_a_ring_of_messages_names_nobody(made: TraceMaker, op: str, advice: str) -> None:
    for rank in range(3):
        made.call(rank, op, 1000, None, [[1.0]], [[0.0]], peer=(rank + 1) % 3, tag=0, at="train.py:12")
    hang(made, *(stack(rank, 12, op) for rank in range(3)))
    [found] = causes(made)
    assert (found.kind, found.ranks, found.others) == ("deadlock", (), (0, 1, 2))
    assert "(0 → 1 → 2 → 0)" in found.sentence
    assert advice in found.sentence


def test_a_ring_of_messages_beside_one_that_matches_none_may_be_due_to_a_wrong_rank(made: TraceMaker) -> None:
    made.call(0, "send", 900, None, [[1.0]], peer=1, tag=0, at="train.py:9")
    for rank, peer in ((1, 2), (2, 1)):
        made.call(rank, "recv", 1000, None, (), [[0.0]], peer=peer, tag=0, at="train.py:12")
    hang(made, stack(0, 9, "send"), stack(1, 12, "recv"), stack(2, 12, "recv"))
    ring = causes(made)[0]
    assert (ring.kind, ring.others) == ("deadlock", (1, 2))
    assert told_facts(ring)["unmatched"] == [
        {"rank": 0, "name": "send", "source": "train.py:9", "direction": "to", "peer": 1}
    ]
    assert "has to send first" not in ring.sentence


@pytest.mark.features
@pytest.mark.parametrize("op", ["send", "recv"])
def test_who_waits_in_a_message_while_most_are_in_a_collective_may_be_right(made: TraceMaker, op: str) -> None:
    made.call(0, op, 1000, None, [[0.0]], [[0.0]], peer=1, tag=0, at="train.py:12")
    for rank in (1, 2):
        made.call(rank, "barrier", 1000, None, at="train.py:14")
    hang(made, stack(0, 12, op), stack(1, 14, "barrier"), stack(2, 14, "barrier"))
    first = causes(made)[0]
    assert (first.kind, first.ranks, first.lines) == ("unmatched", (), ("train.py:12", "train.py:14"))


@pytest.mark.features
def test_a_message_that_did_not_come_is_told_with_where_its_sender_was(made: TraceMaker) -> None:
    made.call(0, "recv", 1000, None, (), [[0.0]], peer=1, tag=0, at="train.py:12")
    for rank in (1, 2):
        made.call(rank, "barrier", 1000, None, at="train.py:14")
    hang(made, stack(0, 12, "recv"), stack(1, 14, "barrier"), stack(2, 14, "barrier"))
    first = causes(made)[0]
    assert told_facts(first) == {
        "how": "nobody_there",
        "waits": [
            {"rank": 0, "name": "recv", "source": "train.py:12", "direction": "from", "peer": 1},
            {"rank": 1, "name": "barrier #2", "source": "train.py:14"},
        ],
        "waited_s": 7.0,
        "did": [{"rank": 1, "what": "waited", "call": {"rank": 1, "name": "barrier #2", "source": "train.py:14"}}],
    }


@pytest.mark.features
def test_what_came_before_from_anybody_is_counted(made: TraceMaker) -> None:
    for turn, source in enumerate((1, 2)):
        made.call(source, "send", 10 * turn + 5, 10 * turn + 6, [[1.0]], peer=0, tag=0, at="train.py:20")
        one = made.call(0, "recv", 10 * turn + 5, None, (), [[1.0]], peer=-1, tag=0, at="train.py:12")
        made.line(0, "end", 10 * turn + 6, i=one, peer=source)
    made.call(0, "recv", 1000, None, (), [[1.0]], peer=-1, tag=0, at="train.py:12")
    for rank in (1, 2):
        made.call(rank, "barrier", 1000, None, at="train.py:14")
    hang(made, stack(0, 12, "recv"), stack(1, 14, "barrier"), stack(2, 14, "barrier"))
    first = causes(made)[0]
    assert told_facts(first) == {
        "how": "nobody_there",
        "waits": [
            {"rank": 0, "name": "recv", "source": "train.py:12", "direction": "from"},
            {"rank": 1, "name": "barrier #2", "source": "train.py:14"},
            {"rank": 2, "name": "barrier #2", "source": "train.py:14"},
        ],
        "waited_s": 7.0,
        "did": [
            {"rank": 1, "what": "waited", "call": {"rank": 1, "name": "barrier #2", "source": "train.py:14"}},
            {"rank": 2, "what": "waited", "call": {"rank": 2, "name": "barrier #2", "source": "train.py:14"}},
        ],
        "before": 2,
    }
    assert first.ranks == (), "who lacks a message that came before may well be right"


@pytest.mark.features
def test_the_verdict_says_what_the_culprit_called_where_the_others_called_something_else(made: TraceMaker) -> None:
    for rank in (0, 1):
        made.call(rank, "all_reduce", 1000, None, [[1.0]], at="train.py:41")
    made.call(2, "barrier", 1000, None, at="train.py:43")
    timed_out = {"event": "timed out", "time": 1_700_000_009.0}
    stacks = (stack(0, 41, "all_reduce"), stack(1, 41, "all_reduce"), stack(2, 43, "barrier"))
    write_events(made, timed_out, *stacks, *map(stopped, range(3)))
    verdict = judge_evidence(read_evidence(made.record(stop=False)))
    assert verdict.culprit is not None
    assert (verdict.culprit.rank, verdict.culprit.cause) == (2, "mismatch")
    called = "rank 2 called barrier at train.py:43 where ranks 0 and 1 called all_reduce at train.py:41 (call #2)"
    assert verdict.reason.endswith(f": {called}")


def test_the_end_of_a_chain_over_two_groups_comes_first(made: TraceMaker) -> None:
    made.group("5", [1, 2], 3)
    made.call(1, "all_reduce", 1000, None, [[1.0]], group="5", at="train.py:20")
    made.call(0, "all_reduce", 1000, None, [[1.0]], at="train.py:22")
    hang(made, stack(0, 22, "all_reduce"), stack(1, 20, "all_reduce"), stack(2, 18))
    first, second = causes(made)
    assert (first.kind, first.ranks, first.step) == ("never_entered", (2,), "all_reduce #1 in [1, 2]")
    assert (second.step, second.ranks) == ("all_reduce #2", (2,))
    assert told_facts(second) == {
        "waits": [{"rank": 0, "name": "all_reduce #2", "source": "train.py:22"}],
        "missing": [1, 2],
        "did": [
            {
                "rank": 1,
                "what": "waited",
                "call": {"rank": 1, "name": "all_reduce #1 in [1, 2]", "source": "train.py:20"},
            },
            {"rank": 2, "what": "stood", "stood": {"place": {"file": "train.py", "line": 18, "call": ""}}},
        ],
    }


def test_a_rank_waiting_for_a_handle_waits_and_one_that_computes_beside_it_does_not(made: TraceMaker) -> None:
    (made.path / "train.py").write_text("compute()\nhandle.wait()\n")
    for rank in (0, 1):
        made.call(rank, "all_reduce", 1000, None, [[1.0]], at="train.py:1", **{"async": True})
    hang(made, stack(0, 2), stack(1, 1), stack(2, 1))
    [found] = causes(made)
    assert (found.ranks, found.others) == ((2,), (0,))


def test_a_backward_that_waits_for_gradients_is_no_python_function_of_torch_distributed(made: TraceMaker) -> None:
    for rank in (0, 2):
        made.call(rank, "all_reduce", 1000, None, [[1.0]], at="train.py:30", **{"async": True})
    backward = {"call": "_engine_run_backward", "inner": "torch/autograd/graph.py"}
    hang(made, stack(0, 30, **backward), stack(1, 28), stack(2, 30, **backward))
    [found] = causes(made)
    assert (found.kind, found.ranks, found.others) == ("never_entered", (1,), (0, 2))


def test_who_had_not_come_to_the_rendezvous_is_said_without_any_call(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    hang(made, stack(0, 3, "init_process_group"), stack(1, 3, "init_process_group"))
    [found] = causes(made)
    assert (found.kind, found.ranks, found.lines) == ("rendezvous", (), ("train.py:3",))


def test_the_last_rank_is_named_if_it_waits_for_no_other(made: TraceMaker) -> None:
    write_events(made, stack(1, 37), stopped(1), exited(0), exited(2))
    [found] = causes(made)
    assert (found.kind, found.ranks, found.others, found.lines[0]) == ("own_code", (1,), (0, 2), "train.py:37")


def test_ranks_in_code_of_their_own_are_said_to_be_in_no_collective(made: TraceMaker) -> None:
    hang(made, *(stack(rank, 37) for rank in range(3)))
    [found] = causes(made)
    assert (found.kind, found.ranks, found.others) == ("own_code", (), (0, 1, 2))
    assert told_facts(found) == {
        "did": [
            {"rank": 0, "what": "stood", "stood": {"place": {"file": "train.py", "line": 37, "call": ""}}},
            {"rank": 1, "what": "stood", "stood": {"place": {"file": "train.py", "line": 37, "call": ""}}},
            {"rank": 2, "what": "stood", "stood": {"place": {"file": "train.py", "line": 37, "call": ""}}},
        ]
    }


def test_everybody_in_a_step_that_never_ended_is_nobodys_fault(made: TraceMaker) -> None:
    for rank in range(3):
        made.call(rank, "all_reduce", 1000, None, [[1.0]], at="train.py:41")
    hang(made, *(stack(rank, 41, "all_reduce") for rank in range(3)))
    [found] = causes(made)
    assert (found.kind, found.ranks) == ("in_flight", ())


def test_two_groups_entered_in_another_order_are_a_ring(made: TraceMaker) -> None:
    made.group("5", [0, 1], 3)
    made.group("6", [0, 1], 3)
    made.call(0, "all_reduce", 1000, None, [[1.0]], group="5", at="train.py:20")
    made.call(1, "all_reduce", 1000, None, [[1.0]], group="6", at="train.py:22")
    hang(made, stack(0, 20, "all_reduce"), stack(1, 22, "all_reduce"), stack(2, 18))
    [found] = causes(made)
    assert (found.kind, found.ranks, found.others) == ("deadlock", (), (0, 1))
    assert told_facts(found) == {
        "cycle": [0, 1],
        "waits": [
            {"rank": 0, "name": "all_reduce #1 in [0, 1]", "source": "train.py:20"},
            {"rank": 1, "name": "all_reduce #1 in [0, 1] (2nd)", "source": "train.py:22"},
        ],
        "all_of": "collectives",
    }


@pytest.mark.features
def test_a_send_and_a_receive_whose_tags_differ_are_no_ring(made: TraceMaker) -> None:
    made.call(0, "send", 1000, None, [[1.0]], peer=1, tag=7, at="train.py:12")
    made.call(1, "recv", 1000, None, (), [[0.0]], peer=0, tag=8, at="train.py:14")
    made.call(2, "barrier", 1000, None, at="train.py:16")
    hang(made, stack(0, 12, "send"), stack(1, 14, "recv"), stack(2, 16, "barrier"))
    first = causes(made)[0]
    assert (first.kind, first.ranks, first.lines) == ("unmatched", (), ("train.py:12", "train.py:14"))
    assert told_facts(first) == {
        "how": "passing_by",
        "waits": [
            {"rank": 0, "name": "send", "source": "train.py:12", "direction": "to", "peer": 1, "tag": 7},
            {"rank": 1, "name": "recv", "source": "train.py:14", "direction": "from", "peer": 0, "tag": 8},
        ],
        "waited_s": 7.0,
    }


@pytest.mark.features
def test_a_receiver_that_waits_for_the_wrong_sender_is_told_with_both_lines(made: TraceMaker) -> None:
    made.call(0, "barrier", 1000, None, at="train.py:16")
    made.call(1, "send", 1000, None, [[1.0]], peer=2, tag=0, at="train.py:12")
    made.call(2, "recv", 1000, None, (), [[0.0]], peer=0, tag=0, at="train.py:14")
    hang(made, stack(0, 16, "barrier"), stack(1, 12, "send"), stack(2, 14, "recv"))
    first = causes(made)[0]
    assert (first.kind, first.ranks, first.lines) == ("unmatched", (), ("train.py:12", "train.py:14"))


@pytest.mark.features
def test_a_message_to_the_wrong_rank_is_told_with_who_waits_for_it(made: TraceMaker) -> None:
    made.call(0, "send", 1000, None, [[1.0]], peer=2, tag=0, at="train.py:12")
    made.call(1, "recv", 1000, None, (), [[0.0]], peer=0, tag=0, at="train.py:14")
    made.call(2, "barrier", 1000, None, at="train.py:16")
    hang(made, stack(0, 12, "send"), stack(1, 14, "recv"), stack(2, 16, "barrier"))
    first = causes(made)[0]
    assert (first.kind, first.ranks, first.lines) == ("unmatched", (), ("train.py:14", "train.py:12"))


def test_a_message_whose_sender_waits_for_one_that_computes_is_a_consequence(made: TraceMaker) -> None:
    made.call(0, "recv", 1000, None, (), [[0.0]], peer=1, tag=0, at="train.py:12")
    made.call(1, "recv", 1000, None, (), [[0.0]], peer=2, tag=0, at="train.py:12")
    hang(made, stack(0, 12, "recv"), stack(1, 12, "recv"), stack(2, 30))
    first = causes(made)[0]
    assert (first.kind, first.ranks) == ("never_entered", (2,))


@pytest.mark.features
def test_a_message_to_a_rank_that_there_is_not_is_told_as_that(made: TraceMaker) -> None:
    made.call(2, "send", 1000, None, [[1.0]], peer=3, at="train.py:12")
    for rank in (0, 1):
        made.call(rank, "barrier", 1000, None, at="train.py:16")
    hang(made, stack(0, 16, "barrier"), stack(1, 16, "barrier"), stack(2, 12, "send"))
    first = causes(made)[0]
    assert (first.kind, first.ranks) == ("unmatched", (2,))
    assert told_facts(first) == {
        "how": "no_such_rank",
        "waits": [{"rank": 2, "name": "send", "source": "train.py:12", "direction": "to", "peer": 3}],
        "last_rank": 2,
        "waited_s": 7.0,
    }


def test_the_pace_of_uneven_steps_is_that_of_their_whole_time(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    for rank in range(3):
        for begin_ms in (100, 200, 300, 8_800, 8_900):
            made.call(rank, "all_reduce", begin_ms, begin_ms + 1, [[1.0]], [[3.0]], red="SUM", at="train.py:9")
    hang(made, *(stack(rank, 9, "all_reduce", at=9.0) for rank in range(3)))
    evidence = read_evidence(made.record(stop=False))
    progress = find_progress(evidence)
    assert progress is not None
    assert progress.count == 5
    assert progress.per_s == pytest.approx(4 / 8.8, rel=0.01)
    assert judge_hang(evidence, "interrupted after 9 s").reason.count("after") == 1


@pytest.mark.parametrize(("line", "culprit"), [(31, None), (32, 1)])
def test_ranks_that_are_all_at_one_line_are_not_blamed_by_a_minority(
    made: TraceMaker, line: int, culprit: int | None
) -> None:
    """They may poll for a file or a key that the others did not write."""
    made.call(0, "barrier", 1000, None, at="train.py:40")
    timed_out = {"event": "timed out", "time": 1_700_000_008.0, "timeout_s": 8.0}
    stacks = (stack(0, 40, "barrier"), stack(1, 31), stack(2, line))
    write_events(made, timed_out, *stacks, *map(stopped, range(3)))
    blamed = judge_evidence(read_evidence(made.record(stop=False))).culprit
    assert (blamed and blamed.rank) == culprit
