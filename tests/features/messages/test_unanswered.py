"""Whose fault it is that nobody was at the other end of a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.diagnosis.causes import find_causes
from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.judge import judge_evidence
from tests.diagnosis.facts import exited, hang, raised, stack, told_facts, write_events
from tests.golden import golden
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit
PEER = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]:7"


@pytest.fixture
def made(tmp_path: Path) -> TraceMaker:
    return TraceMaker(tmp_path / "run", 3)


def hand_on(made: TraceMaker, rounds: int, *left_out: int, line: int) -> None:
    """Rank 1 hands on what rank 0 sends, but for some; rank 2 waits, at a line of its own or rank 1's, for one more."""
    for turn in range(rounds):
        made.call(0, "send", 10 * turn + 1, 10 * turn + 2, [[1.0]], peer=1, tag=0, at="train.py:7")
        made.call(1, "recv", 10 * turn + 1, 10 * turn + 2, (), [[1.0]], peer=0, tag=0, at="train.py:9")
        if turn not in left_out:
            made.call(1, "send", 10 * turn + 3, 10 * turn + 4, [[1.0]], peer=2, tag=0, at="train.py:11")
            made.call(2, "recv", 10 * turn + 3, 10 * turn + 4, (), [[1.0]], peer=1, tag=0, at=f"train.py:{line}")
    made.call(2, "recv", 1000, None, (), [[1.0]], peer=1, tag=0, at=f"train.py:{line}")
    for rank in (0, 1):
        made.call(rank, "barrier", 1000, None, at="train.py:14")
    hang(made, stack(2, line, "recv"), stack(0, 14, "barrier"), stack(1, 14, "barrier"))


def test_whose_loop_would_have_come_to_the_message_next_left_it_out(made: TraceMaker) -> None:
    hand_on(made, 4, 3, line=9)
    first = find_causes(read_evidence(made.record(stop=False)))[0]
    assert (first.kind, first.ranks, first.others) == ("unmatched", (1,), (2,))
    assert told_facts(first) == {
        "how": "nobody_there",
        "waits": [
            {"rank": 2, "name": "recv", "source": "train.py:9", "direction": "from", "peer": 1},
            {"rank": 1, "name": "barrier #1", "source": "train.py:14"},
        ],
        "waited_s": 7.0,
        "did": [{"rank": 1, "what": "waited", "call": {"rank": 1, "name": "barrier #1", "source": "train.py:14"}}],
        "before": 3,
        "left_out": {"rank": 1, "name": "send", "source": "train.py:11", "direction": "to", "peer": 2},
        "left_next": True,
    }


def test_who_had_ended_its_rounds_is_not_told_to_have_left_anything_out(made: TraceMaker) -> None:
    hand_on(made, 3, line=9)
    first = find_causes(read_evidence(made.record(stop=False)))[0]
    assert 1 not in first.ranks


def test_who_left_a_message_out_in_one_round_and_went_on_is_named(made: TraceMaker) -> None:
    hand_on(made, 12, 4, line=13)
    first = find_causes(read_evidence(made.record(stop=False)))[0]
    assert (first.kind, first.ranks, first.others, first.lines[0]) == ("unmatched", (1,), (2,), "train.py:11")
    assert told_facts(first) == {
        "how": "nobody_there",
        "waits": [
            {"rank": 2, "name": "recv", "source": "train.py:13", "direction": "from", "peer": 1},
            {"rank": 1, "name": "barrier #1", "source": "train.py:14"},
        ],
        "waited_s": 7.0,
        "did": [{"rank": 1, "what": "waited", "call": {"rank": 1, "name": "barrier #1", "source": "train.py:14"}}],
        "before": 11,
        "left_out": {"rank": 1, "name": "send", "source": "train.py:11", "direction": "to", "peer": 2},
    }


def test_who_leaves_messages_out_now_and_then_is_not_named_for_it(made: TraceMaker) -> None:
    hand_on(made, 12, 3, 8, line=13)
    assert find_causes(read_evidence(made.record(stop=False)))[0].ranks == ()


@pytest.mark.parametrize("odd", [0, 1, 2])
def test_of_a_ring_the_rank_with_another_neighbour_is_named(made: TraceMaker, odd: int) -> None:
    for rank in range(3):
        made.call(rank, "send", 1, 900, [[1.0]], peer=(rank + 1) % 3, tag=0, at="train.py:8")
        peer = (rank + 1) % 3 if rank == odd else (rank - 1) % 3
        lost = made.call(rank, "recv", 2, None, (), [[1.0]], peer=peer, tag=0, at="train.py:9")
        if rank == odd:
            made.line(rank, "end", 5000, i=lost, err="Connection closed by peer")
    others = [exited(rank, at=4.9) for rank in range(3) if rank != odd]
    write_events(made, raised(odd, PEER, 9, 5.1), *others)
    verdict = judge_evidence(read_evidence(made.record(stop=False)))
    assert verdict.culprit is not None
    assert verdict.culprit.rank == odd
    assert golden(1, odd, (odd + 1) % 3) in verdict.reason


def test_who_ended_before_its_own_send_was_over_is_named(made: TraceMaker) -> None:
    made.call(0, "send", 1, None, [[1.0]], peer=1, tag=0, at="train.py:8")
    lost = made.call(1, "recv", 1000, None, (), [[1.0]], peer=0, tag=0, at="train.py:9")
    made.line(1, "end", 5000, i=lost, err="Connection closed by peer")
    write_events(made, exited(0, at=3.0), raised(1, PEER, 9, 5.1), exited(2, at=2.0))
    culprit = judge_evidence(read_evidence(made.record(stop=False))).culprit
    assert culprit is not None
    assert (culprit.rank, culprit.cause) == (0, "left_early")


@pytest.mark.parametrize(("deviating", "rounds", "usual"), [(0, 3, 7), (1, 3, 7), (0, 1, None)])
def test_who_uses_another_tag_than_in_the_rounds_before_is_named(
    made: TraceMaker, deviating: int, rounds: int, usual: int | None
) -> None:
    """Tags grow by two from round to round; a single round shows no rule."""
    for turn in range(rounds):
        made.call(0, "send", 10 * turn, 10 * turn + 1, [[1.0]], peer=1, tag=2 * turn + 1, at="train.py:7")
        made.call(1, "recv", 10 * turn, 10 * turn + 1, (), [[1.0]], peer=0, tag=2 * turn + 1, at="train.py:9")
    tags = [2 * rounds + 1 + 4 * (rank == deviating) for rank in (0, 1)]
    made.call(0, "send", 1000, None, [[1.0]], peer=1, tag=tags[0], at="train.py:7")
    made.call(1, "recv", 1000, None, (), [[1.0]], peer=0, tag=tags[1], at="train.py:9")
    hang(made, stack(0, 7, "send"), stack(1, 9, "recv"))
    first = find_causes(read_evidence(made.record(stop=False)))[0]
    assert (first.kind, first.ranks) == ("unmatched", () if usual is None else (deviating,))
    assert told_facts(first).get("usual_tag") == usual
    assert usual is None or first.lines == (
        ("train.py:7", "train.py:9") if deviating == 0 else ("train.py:9", "train.py:7")
    )


def test_the_tag_of_other_ranks_at_the_line_shows_who_deviates(made: TraceMaker) -> None:
    for rank in range(3):
        tag = 5 if rank == 1 else 4
        made.call(rank, "send", 1, None, [[1.0]], peer=(rank + 1) % 3, tag=tag, at="train.py:7", **{"async": True})
        end = None if rank == 2 else 3
        made.call(rank, "recv", 2, end, (), [[1.0]], peer=(rank - 1) % 3, tag=4, at="train.py:8")
    hang(made, stack(1, 9, "wait"), stack(2, 8, "recv"), stack(0, 9, "wait"))
    first = find_causes(read_evidence(made.record(stop=False)))[0]
    assert (first.kind, first.ranks, first.lines) == ("unmatched", (1,), ("train.py:7", "train.py:8"))


@pytest.mark.parametrize("sends", [(1, 2), (2,)])
def test_of_a_ring_the_rank_that_alone_left_its_send_out_is_named(made: TraceMaker, sends: tuple[int, ...]) -> None:
    """With one rank of three that sends, the majority sent nothing."""
    for rank in range(3):
        if rank in sends:
            made.call(rank, "send", 1, 4, [[1.0]], peer=(rank + 1) % 3, tag=0, at="train.py:8")
        came = (rank - 1) % 3 in sends
        made.call(rank, "recv", 2, 5 if came else None, (), [[1.0]], peer=(rank - 1) % 3, tag=0, at="train.py:9")
        if came:
            made.call(rank, "barrier", 6, None, at="train.py:10")
    waits = {rank: ("barrier", 10) if (rank - 1) % 3 in sends else ("recv", 9) for rank in range(3)}
    hang(made, *(stack(rank, line, op) for rank, (op, line) in waits.items()))
    first = find_causes(read_evidence(made.record(stop=False)))[0]
    told = told_facts(first)
    assert told.get("made_by") == ([1, 2] if len(sends) == 2 else None)
    if len(sends) == 2:
        assert (first.ranks, first.lines[0], told["left_out"]["source"]) == ((0,), "train.py:8", "train.py:8")


def serve(made: TraceMaker, skipped: tuple[int, int] | None) -> None:
    """Rank 0 receives from each of the others in three rounds; one of them may skip a message."""
    for turn in range(3):
        for rank in (1, 2):
            lost = (rank, turn) == skipped
            if not lost:
                made.call(rank, "send", 10 * turn + rank, 10 * turn + 5, [[1.0]], peer=0, tag=0, at="train.py:20")
            end = None if lost else 10 * turn + 5
            index = made.call(0, "recv", 10 * turn + rank, end, (), [[1.0]], peer=rank, tag=0, at="train.py:12")
    made.line(0, "end", 5000, i=index, err="Connection closed by peer")
    write_events(made, raised(0, PEER, 12, 5.1), exited(1, at=4.9), exited(2, at=4.9))


def test_of_ranks_that_were_asked_for_the_same_the_one_that_did_not_answer_left_early(made: TraceMaker) -> None:
    serve(made, (2, 2))
    culprit = judge_evidence(read_evidence(made.record(stop=False))).culprit
    assert culprit is not None
    assert (culprit.rank, culprit.cause) == (2, "left_early")


def test_a_rank_whose_others_have_several_neighbors_at_a_line_is_not_named_for_another_one(made: TraceMaker) -> None:
    """The others give to both of their neighbors at the line: to which one at which turn proves nothing."""
    for rank, peers in enumerate([(1, 1), (2, 0), (0, 1)]):
        for n, peer in enumerate(peers):
            made.call(rank, "send", n + 1, 2 if n == 0 else None, [[1.0]], peer=peer, tag=0, at="train.py:7")
    hang(made, *(stack(rank, 7, "send") for rank in range(3)))
    facts = [told_facts(one) for one in find_causes(read_evidence(made.record(stop=False)))]
    assert facts
    assert not any(one.get("how") == "neighbour" for one in facts)
