"""Waiting for the agents of new nodes, whose channel other commands may share."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from lab.engine.ready import wait_ready
from lab.errors import NodeLost
from lab.node.messages import wire
from lab.node.messages.agent import PROTOCOL, Ready, Refused
from lab.plan.cluster import Node

REFUSED = "hello speaks another version of the protocol"


class SocketChannel:
    def __init__(self, end: socket.socket) -> None:
        self.node = Node(name="node0", node_rank=0, handle="h", address="10.0.0.1")
        self.end = end

    def fileno(self) -> int:
        return self.end.fileno()

    def receive(self) -> bytes:
        return self.end.recv(1 << 16)


@pytest.fixture
def channel() -> Iterator[tuple[Any, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield SocketChannel(ours), theirs


def ready() -> Ready:
    return Ready(node="node0", torch="2.13.0")


def test_the_refusal_of_another_versions_command_is_not_ours(channel: tuple[Any, socket.socket]) -> None:
    ours, agent = channel
    agent.sendall(wire.encode_message(Refused("", "hello", REFUSED, PROTOCOL - 1)) + wire.encode_message(ready()))
    assert wait_ready([ours], 5.0, lambda _: None) is None


@pytest.mark.parametrize("spoken", [0, PROTOCOL])
def test_a_refusal_of_the_own_hello_ends_the_wait(channel: tuple[Any, socket.socket], spoken: int) -> None:
    ours, agent = channel
    agent.sendall(wire.encode_message(Refused("", "hello", REFUSED, spoken)))
    with pytest.raises(NodeLost, match=REFUSED):
        wait_ready([ours], 5.0, lambda _: None)


def test_a_refused_message_says_which_version_it_had() -> None:
    found = wire.decode_message(b'{"is": "hello", "version": %d}' % (PROTOCOL - 1))
    assert isinstance(found, wire.Malformed)
    assert found.spoken == PROTOCOL - 1
