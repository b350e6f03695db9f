"""The stream to an agent, as docker-py hands it out."""

from __future__ import annotations

import gc
import http.client
import socket
import sys
from typing import Any

import pytest

from lab.engine.docker.connection import DockerChannel
from lab.plan.cluster import Node


def test_nothing_is_told_of_a_closed_stream_whose_answer_is_left(monkeypatch: pytest.MonkeyPatch):
    """As Python 3.13 and later do of what fails in a finalizer."""
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    engine, mine = socket.socketpair()
    engine.sendall(b"HTTP/1.1 101 UPGRADED\r\n\r\n")
    answer = http.client.HTTPResponse(mine)
    answer.begin()
    attached = answer.fp.raw  # type: ignore[attr-defined]
    attached._response = answer
    channel = DockerChannel(Node(name="node0", node_rank=0, handle="", address=""), attached)
    channel.close()
    assert answer.closed
    del channel, attached, answer, mine
    gc.collect()
    assert told == []
    engine.close()
