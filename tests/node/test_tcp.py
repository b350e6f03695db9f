"""What the kernel says of connections is read as it is, taken together by peer, and told seldom."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from lab.node import tcp
from lab.node.messages.agent import Config, Connections
from lab.node.tcp import Connection, Reports, by_peer, list_connections

_CONFIG = Config(node="node1", root="/", container=True, import_root="/")


def _connection(**more: Any) -> Connection:
    known: dict[str, Any] = {"local": "10.0.0.3", "peer": "10.0.0.2", "number": 1} | more
    known["most_bytes"] = known.get("acknowledged_bytes", 0)
    return Connection(known.pop("local"), (1, 2), Connections(0.0, **known))


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with ExitStack() as held:
        listener = held.enter_context(socket.create_server(("127.0.0.1", 0)))
        one = held.enter_context(socket.create_connection(listener.getsockname()))
        other = held.enter_context(listener.accept()[0])
        yield one, other


def test_the_kernel_tells_what_came_and_was_not_read(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = pair
    one.sendall(b"x" * 100)
    ports = other.getsockname()[1], other.getpeername()[1]
    told = next(found for found in list_connections() if found.ports == ports)
    assert (told.local, told.facts.peer) == ("127.0.0.1", "127.0.0.1")
    assert told.facts.segments_in == 3
    sent = next(found.facts for found in list_connections() if found.ports == ports[::-1])
    assert sent.acknowledged_bytes >= 100
    assert sent.unacknowledged_bytes == sent.sent_again == 0
    assert sent.round_trip_s > 0


def test_connections_with_one_peer_are_taken_together_and_those_of_a_node_with_itself_left_out() -> None:
    found = by_peer(
        [
            _connection(silent_s=0.2, unacknowledged_bytes=5, round_trip_s=0.003, acknowledged_bytes=1),
            _connection(silent_s=1.5, unacknowledged_bytes=7, round_trip_s=0.001, acknowledged_bytes=9),
            _connection(peer="10.0.0.3"),
            _connection(local="127.0.0.1", peer="127.0.0.1"),
        ]
    )
    assert found == {
        "10.0.0.2": Connections(
            0.0,
            peer="10.0.0.2",
            number=2,
            unacknowledged_bytes=12,
            silent_s=1.5,
            round_trip_s=0.001,
            acknowledged_bytes=10,
            most_bytes=9,
        )
    }


def _looks(monkeypatch: pytest.MonkeyPatch, *states: Connection, every_s: float = 0.5) -> list[list[Connections]]:
    """What is told at each look, where the kernel says this at each."""
    clock = [100.0]
    monkeypatch.setattr("lab.node.tcp.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("lab.node.tcp.Reports.ask", lambda self: None)
    told: list[Any] = []
    reports, looks = Reports(_CONFIG, told.append), []
    for state in states:
        clock[0] += every_s
        monkeypatch.setattr(tcp, "list_connections", lambda state=state: [state])
        reports.poll()
        looks.append([*told])
        told.clear()
    return looks


def test_while_all_is_well_it_is_told_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = _looks(monkeypatch, *[_connection()] * 20)
    assert [number for number, told in enumerate(looks, 1) if told] == [2, 4, 8, 16]


def test_what_nobody_acknowledges_is_told_as_soon_as_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = _connection(unacknowledged_bytes=9, acknowledged_bytes=50)
    looks = _looks(monkeypatch, _connection(acknowledged_bytes=40), waiting, waiting, waiting)
    assert [one.silent_s for one in looks[2]] == [0.5]
    assert [one.unacknowledged_bytes for one in looks[2]] == [9]


def test_a_moment_without_an_answer_is_told_when_it_is_seen_and_seldom_where_there_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    well, silent = _connection(), _connection(unacknowledged_bytes=9, silent_s=0.21)
    looks = _looks(monkeypatch, well, well, well, silent, well, well, silent)
    assert [number for number, told in enumerate(looks, 1) if any(one.silent_s for one in told)] == [4, 7]
    looks = _looks(monkeypatch, *[well, silent] * 2000)
    told = [number for number, told in enumerate(looks, 1) if told]
    assert 50 < len([number for number in told if number > 2000]) < 100


def test_what_goes_on_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    states = [_connection(unacknowledged_bytes=9, acknowledged_bytes=number) for number in range(6)]
    assert {one.silent_s for told in _looks(monkeypatch, *states) for one in told} == {0.0}


def test_a_silence_is_at_least_as_long_as_the_timers_that_ran_out() -> None:
    assert [round(tcp._silence(count, 0.2 * 2**count), 3) for count in range(4)] == [0.0, 0.2, 0.6, 1.4]


def test_a_node_without_a_network_of_its_own_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "list_connections", lambda: [_connection()])
    told: list[Any] = []
    reports = Reports(_CONFIG._replace(container=False), told.append)
    reports.poll(ended=True)
    reports.report()
    assert told == []


def test_a_kernel_that_can_be_reached_answers(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[socket.socket, socket.socket]
) -> None:
    monkeypatch.setattr(tcp, "list_connections", lambda: [_connection(peer="127.0.0.1")])
    monkeypatch.setattr(tcp, "by_peer", lambda found: {"127.0.0.1": Connections(0.0, peer="127.0.0.1")})
    told: list[Any] = []
    reports = Reports(_CONFIG, told.append)
    reports.report()  # from now on it is known whom to ask
    reports.ask()
    reports.report()
    reports.close()
    assert told[-1].answers is True
