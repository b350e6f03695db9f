from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lab.features.functions.calling import CallLine
from lab.node.messages.agent import ANSWERS, CALLED, Exited, Input, InputDelivered, Output

KIB = 1 << 10


class Agents:
    run = "r"

    def __init__(self) -> None:
        self.said: list[tuple[str, Input]] = []
        self.actions: dict[int, Callable[[], object]] = {}

    def send(self, node: str, *messages: Any) -> None:
        self.said += [(node, message) for message in messages]

    def add_reader(self, fd: int, action: Callable[[], object]) -> None:
        self.actions[fd] = action

    def remove_reader(self, fd: int) -> None:
        self.actions.pop(fd, None)

    def attend(self) -> None:
        for action in list(self.actions.values()):
            action()

    def given(self, rank: int) -> bytes:
        return b"".join(message.data for _, message in self.said if message.rank == rank)

    def told_last(self) -> set[int]:
        return {message.rank for _, message in self.said if message.last}


def worker(rank: int) -> Any:
    return SimpleNamespace(rank=rank, local_rank=0, node=f"node{rank}", env={}, argv=("x.py",))


@pytest.fixture
def heard() -> list[tuple[int, bytes]]:
    return []


@pytest.fixture
def ended() -> list[int]:
    return []


@pytest.fixture
def line(heard: list[tuple[int, bytes]], ended: list[int]) -> CallLine:
    line = CallLine(lambda rank, data: heard.append((rank, data)), ended.append)
    line.timeout_s = 60.0
    return line


@pytest.fixture
def agents() -> Agents:
    return Agents()


def begin(line: CallLine, agents: Agents) -> None:
    assert [line.start(worker(rank)).stdin for rank in range(2)] == [CALLED, CALLED]
    line.start_reading(agents)  # type: ignore[arg-type]


def test_what_was_sent_before_the_ranks_were_let_go_arrives_in_order(line: CallLine, agents: Agents) -> None:
    line.send(b"one ")
    begin(line, agents)
    line.send(b"two ")
    line.send(b"only", rank=1)
    agents.attend()
    assert agents.given(0) == b"one two "
    assert agents.given(1) == b"one two only"


def test_no_more_is_under_way_than_an_agent_holds(line: CallLine, agents: Agents) -> None:
    begin(line, agents)
    line.send(bytes(1000 * KIB))
    agents.attend()
    assert len(agents.given(0)) == 256 * KIB
    line.handle_message(InputDelivered("r", 0, 100 * KIB))
    assert len(agents.given(0)) == 356 * KIB
    assert len(agents.given(1)) == 256 * KIB


def test_ranks_are_told_that_nothing_follows_only_after_all_that_was_sent(line: CallLine, agents: Agents) -> None:
    begin(line, agents)
    line.send(bytes(300 * KIB))
    line.hang_up()
    agents.attend()
    assert agents.told_last() == set()
    line.handle_message(InputDelivered("r", 0, 256 * KIB))
    assert agents.told_last() == {0}
    assert len(agents.given(0)) == 300 * KIB


def test_whoever_hangs_up_while_the_run_comes_to_its_end_is_heard(line: CallLine, agents: Agents) -> None:
    begin(line, agents)
    line.hang_up()
    line.stop_reading()
    assert agents.told_last() == {0, 1}
    assert agents.actions == {}


def test_answers_and_ends_are_passed_on(
    line: CallLine, agents: Agents, heard: list[tuple[int, bytes]], ended: list[int]
) -> None:
    begin(line, agents)
    line.handle_message(Output("r", 1, ANSWERS, 0.0, b"yes"))
    line.handle_message(Output("r", 7, ANSWERS, 0.0, b"there is no such rank"))
    line.handle_message(Exited(1, 0.0))
    line.send(b"more")
    agents.attend()
    assert (heard, ended, agents.given(1)) == ([(1, b"yes")], [1], b"")


def test_giving_up_interrupts_the_run(line: CallLine, agents: Agents) -> None:
    begin(line, agents)
    line.abort()
    with pytest.raises(KeyboardInterrupt):
        agents.attend()


def test_time_counts_from_each_call_and_only_while_one_is_under_way(line: CallLine, agents: Agents) -> None:
    assert (line.held, line.allowed_s) == (True, None)
    line.call(b"x", 5.0)
    begin(line, agents)
    began = time.monotonic()
    assert (line.held, line.allowed_s) == (False, 5.0)
    assert line.held_s == pytest.approx(5.0 - 60.0)
    line.set_idle()
    assert line.held
    line.call(b"y", 90.0)
    assert line.held_s - (90.0 - 60.0) == pytest.approx(time.monotonic() - began, abs=5.0)
