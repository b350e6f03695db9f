from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lab.features.interactive import terminal as subject
from lab.features.interactive.terminal import FedStdin, Terminal
from lab.node.messages.agent import (
    ANOTHERS,
    FED,
    NOTHING,
    ON_REQUEST,
    OWN,
    Breakpoint,
    Continued,
    Exited,
    Input,
    InputDelivered,
    Release,
    Window,
)
from tests.golden import golden

pytestmark = pytest.mark.unit


class Agents:
    """Takes what is said to agents, and what is to be done when a descriptor can be read."""

    def __init__(self) -> None:
        self.said: list[tuple[str, Any]] = []
        self.actions: dict[int, Callable[[], object]] = {}

    def send(self, node: str, *messages: Any) -> None:
        self.said += [(node, message) for message in messages]

    def add_reader(self, fd: int, action: Callable[[], object]) -> None:
        assert fd not in self.actions
        self.actions[fd] = action

    def remove_reader(self, fd: int) -> None:
        self.actions.pop(fd, None)


class FakeKeyboard:
    fd, size = 100, (24, 80)

    def __init__(self) -> None:
        self.is_raw = False
        self.typed = b""

    def enter_raw_mode(self) -> None:
        self.is_raw = True

    def restore(self) -> None:
        self.is_raw = False

    def read(self) -> bytes:
        return self.typed


class Shown:
    def __init__(self) -> None:
        self.told: list[tuple[int | None, str, bool]] = []

    def terminal(self, rank: int | None, told: str, *, raw: bool) -> None:
        self.told.append((rank, told, raw))


def plan(interactive: int | None = None) -> Any:
    return SimpleNamespace(
        run="r", interactive=interactive, workers=[SimpleNamespace(node=f"node{rank}") for rank in range(3)]
    )


class Desk:
    """A terminal whose time stands still unless it is told to pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, interactive: int | None = None) -> None:
        self.now = 100.0
        monkeypatch.setattr(subject.time, "monotonic", lambda: self.now)
        self.keyboard, self.shown, self.agents = FakeKeyboard(), Shown(), Agents()
        self.terminal = Terminal(plan(interactive), self.keyboard, self.shown)  # type: ignore[arg-type]
        self.terminal.start_reading(self.agents)  # type: ignore[arg-type]

    def stops(self, *ranks: int) -> None:
        for rank in ranks:
            self.terminal.handle_message(Breakpoint(rank, 0.0, at=f"a.py:{rank}"))

    def goes_on(self, rank: int) -> None:
        self.terminal.handle_message(Continued(rank, 0.0))

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.terminal.poll()

    @property
    def granted(self) -> list[int]:
        return [message.rank for _, message in self.agents.said if isinstance(message, Release)]


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(monkeypatch)


def test_who_comes_to_a_breakpoint_has_the_terminal_until_it_goes_on(desk: Desk) -> None:
    assert not desk.keyboard.is_raw
    desk.stops(1)
    assert desk.agents.said == [("node1", Window("r", 1, 24, 80)), ("node1", Release("r", 1, "grant", ""))]
    desk.keyboard.typed = b"n\r"
    desk.agents.actions[100]()
    assert desk.agents.said[-1] == ("node1", Input("r", 1, b"n\r"))
    desk.goes_on(1)
    assert desk.keyboard.is_raw
    desk.passes(1.0)
    assert (desk.keyboard.is_raw, desk.agents.actions) == (False, {})
    assert desk.shown.told == [
        (1, golden(1), False),
        (None, golden(2), False),
    ]


def test_who_has_the_terminal_is_told_of_its_size(desk: Desk) -> None:
    desk.stops(1)
    desk.keyboard.size = (30, 100)
    desk.passes(0.2)
    desk.passes(0.2)
    windows = [message for _, message in desk.agents.said if isinstance(message, Window)]
    assert windows == [Window("r", 1, 24, 80), Window("r", 1, 30, 100)]


def test_a_rank_that_makes_a_step_keeps_it_and_one_that_stays_away_gives_way(desk: Desk) -> None:
    desk.stops(1, 2, 0)
    desk.goes_on(1)
    desk.passes(0.1)
    desk.stops(1)
    assert desk.granted == [1, 1]
    desk.goes_on(1)
    desk.passes(0.31)
    assert desk.granted == [1, 1, 0]
    desk.stops(1)
    desk.goes_on(0)
    desk.passes(0.31)
    assert desk.granted == [1, 1, 0, 1]
    assert [rank for rank, *_ in desk.shown.told] == [1, 0, 1]
    assert desk.shown.told[1][1].endswith(golden(1))


def test_who_ends_does_not_keep_others_from_it(desk: Desk) -> None:
    desk.stops(0, 1, 2)
    desk.terminal.handle_message(Exited(1, 0.0, code=1))
    desk.terminal.handle_message(Exited(0, 0.0, code=1))
    assert desk.granted == [0, 2]
    desk.stops(1)
    desk.terminal.handle_message(Exited(2, 0.0, code=0))
    assert not desk.keyboard.is_raw
    assert desk.shown.told[-1] == (None, "", False)


def test_time_stops_while_somebody_debugs(desk: Desk) -> None:
    desk.passes(5.0)
    assert (desk.terminal.held, desk.terminal.held_s) == (False, 0.0)
    desk.stops(1)
    desk.passes(7.0)
    assert (desk.terminal.held, desk.terminal.held_s) == (True, 7.0)
    desk.goes_on(1)
    desk.passes(1.0)
    desk.passes(9.0)
    assert (desk.terminal.held, desk.terminal.held_s) == (False, 8.0)


@pytest.mark.parametrize("typed", [b"\x1d", b"abc\x1dx", b""])
def test_the_run_can_be_ended_from_within(desk: Desk, typed: bytes) -> None:
    desk.stops(1)
    desk.keyboard.typed = typed
    with pytest.raises(KeyboardInterrupt):
        desk.agents.actions[100]()
    assert not desk.keyboard.is_raw


def test_it_is_given_back_at_the_end_whoever_has_it(desk: Desk) -> None:
    desk.stops(1, 2)
    desk.terminal.stop_reading()
    desk.terminal.stop_reading()
    desk.stops(0)
    assert (desk.keyboard.is_raw, desk.granted) == (False, [1])


def test_a_rank_that_was_named_has_it_from_the_start_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(monkeypatch, interactive=2)
    assert [desk.terminal.kind(rank) for rank in range(3)] == [ANOTHERS, ANOTHERS, OWN]
    assert [bool(desk.terminal.env(rank)) for rank in range(3)] == [False, False, True]
    assert desk.shown.told == [(2, golden(1), True)]
    desk.stops(0)
    assert (desk.granted, desk.terminal.held) == ([], True)
    desk.terminal.handle_message(Exited(2, 0.0, code=0))
    assert (desk.keyboard.is_raw, desk.terminal.held) == (False, False)


def test_all_may_ask_where_none_was_named(desk: Desk) -> None:
    assert [desk.terminal.kind(rank) for rank in range(2)] == [ON_REQUEST] * 2
    assert desk.terminal.env(0) == {}


# -- what is piped in


def test_what_is_piped_in_is_sent_no_faster_than_it_is_taken(pipe: tuple[int, int]) -> None:
    read, write = pipe
    fed, agents = FedStdin(plan(), read), Agents()
    assert [fed.kind(rank) for rank in range(2)] == [FED, NOTHING]
    fed.start_reading(agents)  # type: ignore[arg-type]
    for _ in range(4):
        os.write(write, b"x" * 65536)
        agents.actions[read]()
    assert agents.actions == {}
    fed.handle_message(InputDelivered("r", 0, 1))
    os.write(write, b"y")
    agents.actions[read]()
    assert agents.actions == {}
    fed.handle_message(InputDelivered("r", 0, 1000))
    os.close(write)
    agents.actions[read]()
    assert agents.said[-2:] == [("node0", Input("r", 0, b"y")), ("node0", Input("r", 0, b"", last=True))]
    assert agents.actions == {}


def test_nothing_is_read_that_nobody_takes(pipe: tuple[int, int]) -> None:
    fed, agents = FedStdin(plan(), pipe[0]), Agents()
    fed.start_reading(agents)  # type: ignore[arg-type]
    read = agents.actions[pipe[0]]
    fed.handle_message(InputDelivered("r", 0, 0, closed=True))
    read()
    fed.stop_reading()
    assert (agents.actions, agents.said) == ({}, [])
