"""What is luck in the trace of a passed run, and what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.features.strict_order import findings as luck
from lab.trace.read import read_trace
from lab.trace.steps import match_steps
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit
ASYNC: dict[str, Any] = {"async": True}


@pytest.fixture
def made(tmp_path: Path) -> TraceMaker:
    return TraceMaker(tmp_path / "run", 3)


def send(made: TraceMaker, rank: int, to: int, at_ms: float, line: int, *, count: int = 1, via: str = "send") -> None:
    made.call(rank, "send", at_ms, 90, [[1.0] * count], peer=to, tag=0, at=f"a.py:{line}", via=via)


def recv(
    made: TraceMaker, rank: int, of: int, at_ms: float, line: int, *, came: int | None = None, via: str = "recv"
) -> None:
    index = made.call(rank, "recv", at_ms, None, (), [[0.0]], peer=of, tag=0, at=f"a.py:{line}", via=via)
    made.line(rank, "end", 91, i=index, **({} if came is None else {"peer": came}))


def reduce(made: TraceMaker, rank: int, group: str, at_ms: float, line: int, **more: Any) -> None:
    made.call(rank, "all_reduce", at_ms, 92, [[1.0]], [[1.0]], group=group, at=f"a.py:{line}", **more)


def cycles(made: TraceMaker) -> list[list[tuple[int, str, str]]]:
    trace = read_trace(made.record())
    found = luck.find_cycles(trace, match_steps(trace))
    return [[(hop.first.rank, hop.first.source, hop.then.source) for hop in cycle] for cycle in found]


def test_two_groups_in_opposite_orders_are_a_cycle(made: TraceMaker) -> None:
    for name in ("1", "2"):
        made.group(name, [0, 1])
    for rank, (first, second) in enumerate((("1", "2"), ("2", "1"))):
        reduce(made, rank, first, 1, 5, **ASYNC)
        reduce(made, rank, second, 2, 6, **ASYNC)
    assert cycles(made) == [[(0, "a.py:5", "a.py:6"), (1, "a.py:5", "a.py:6")]]


def test_two_groups_in_the_same_order_are_none(made: TraceMaker) -> None:
    for name in ("1", "2"):
        made.group(name, [0, 1])
        for rank in (0, 1):
            reduce(made, rank, name, int(name), 5, **ASYNC)
    assert cycles(made) == []


def test_both_ends_that_send_before_they_receive_are_a_cycle(made: TraceMaker) -> None:
    for rank in (0, 1):
        send(made, rank, 1 - rank, 1, 3)
        recv(made, rank, 1 - rank, 2, 4)
    assert cycles(made) == [[(0, "a.py:3", "a.py:4"), (1, "a.py:3", "a.py:4")]]


def test_handles_and_batches_of_messages_are_none(made: TraceMaker) -> None:
    for rank in (0, 1):
        send(made, rank, 1 - rank, 1, 3, via="isend")
        recv(made, rank, 1 - rank, 2, 4, via="irecv")
        send(made, rank, 1 - rank, 3, 6, via="batch_isend_irecv")
        recv(made, rank, 1 - rank, 4, 6, via="batch_isend_irecv")
    assert cycles(made) == []


def test_a_handle_that_was_waited_for_before_is_like_a_blocking_call(made: TraceMaker) -> None:
    for rank in (0, 1):
        send(made, rank, 1 - rank, 1, 3, via="isend")
        made.line(rank, "wait", 2, e=0, at="a.py:4")
        made.line(rank, "wait", 3, e=1)
        recv(made, rank, 1 - rank, 4, 5)
    assert cycles(made) == [[(0, "a.py:3", "a.py:5"), (1, "a.py:3", "a.py:5")]]


def test_batches_wait_for_each_other_as_a_whole(made: TraceMaker) -> None:
    for rank in (0, 1):
        send(made, rank, 1 - rank, 1, 3, via="batch_isend_irecv")
        recv(made, rank, 1 - rank, 2, 4, via="batch_isend_irecv")
    assert cycles(made) == [[(0, "a.py:3", "a.py:4"), (1, "a.py:3", "a.py:4")]]


def test_threads_and_libraries_make_no_statement_possible(made: TraceMaker) -> None:
    for rank in (0, 1):
        send(made, rank, 1 - rank, 1, 3, via="Schedule1F1B.step")
        recv(made, rank, 1 - rank, 2, 4, via="Schedule1F1B.step")
    assert cycles(made) == []
    made.line(0, "threads", 1)
    assert cycles(made) == []


def other_matches(made: TraceMaker) -> list[tuple[str, str, str]]:
    trace = read_trace(made.record())
    found = luck.find_other_matches(trace, match_steps(trace))
    return [(receive.source, other.source, broken.source) for receive, other, broken in found]


def test_a_receive_from_anybody_before_one_from_a_rank_may_take_its_message(made: TraceMaker) -> None:
    send(made, 1, 0, 1, 5)
    send(made, 2, 0, 1, 6)
    recv(made, 0, -1, 2, 8, came=1)
    recv(made, 0, 2, 3, 9)
    assert other_matches(made) == [("a.py:8", "a.py:6", "a.py:9")]


def test_receives_from_anybody_that_take_all_messages_break_nothing(made: TraceMaker) -> None:
    send(made, 1, 0, 1, 5)
    send(made, 2, 0, 1, 6)
    recv(made, 0, -1, 2, 8, came=1)
    recv(made, 0, -1, 3, 8, came=2)
    assert other_matches(made) == []


def test_a_message_of_another_size_breaks_a_receive_from_anybody(made: TraceMaker) -> None:
    send(made, 1, 0, 1, 5)
    send(made, 2, 0, 1, 6, count=3)
    recv(made, 0, -1, 2, 8, came=1)
    made.call(0, "recv", 3, None, (), [[0.0] * 3], peer=-1, tag=0, at="a.py:9", via="recv")
    made.line(0, "end", 93, i=2, peer=2)
    assert other_matches(made) == [("a.py:8", "a.py:6", "a.py:8")]


def test_a_message_that_answers_the_receive_cannot_come_first(made: TraceMaker) -> None:
    send(made, 1, 0, 1, 5)
    recv(made, 0, -1, 2, 8, came=1)
    send(made, 0, 2, 3, 9)
    recv(made, 2, 0, 3, 10)
    send(made, 2, 0, 4, 11)
    recv(made, 0, 2, 5, 12)
    assert other_matches(made) == []


def test_a_send_without_a_receive_is_found(made: TraceMaker) -> None:
    send(made, 1, 0, 1, 5)
    trace = read_trace(made.record())
    assert [call.source for call in luck.find_unreceived(trace, match_steps(trace))] == ["a.py:5"]


@pytest.mark.parametrize(
    "error",
    [
        "Timed out waiting 2000ms for recv operation to complete",
        "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 2000 ms",
    ],
)
def test_a_wait_that_only_the_time_limit_of_another_rank_ended_is_found(made: TraceMaker, error: str) -> None:
    made.call(0, "recv", 1, None, (), [[0.0]], peer=1, tag=0, at="a.py:7", via="recv")
    made.line(0, "end", 50, i=1, err=error)
    reduce(made, 0, "0", 51, 9)
    reduce(made, 1, "0", 3, 9)
    trace = read_trace(made.record())
    timed_out = luck.find_timed_out(trace, match_steps(trace))
    assert [(call.source, other.source) for call, other in timed_out] == [("a.py:7", "a.py:9")]


def test_a_rank_that_came_too_late_is_no_luck(made: TraceMaker) -> None:
    for rank, begin_ms in enumerate((1, 60)):
        index = made.call(rank, "all_reduce", begin_ms, None, [[1.0]], at="a.py:7")
        made.line(rank, "end", begin_ms + 40, i=index, err="Timed out waiting 2000ms")
    trace = read_trace(made.record())
    assert luck.find_timed_out(trace, match_steps(trace)) == []
