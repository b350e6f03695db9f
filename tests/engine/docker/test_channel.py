"""The stream to an agent of an engine that is reached over TCP: a plain socket."""

from __future__ import annotations

import gc
import socket
import sys
import threading
from typing import Any

import pytest

from lab.engine.docker.connection import Connection, DockerChannel
from lab.plan.cluster import Node

ANSWERS = {
    "version": b'HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{"ApiVersion":"1.44"}',
    "attach": b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n",
}


def serve(listener: socket.socket) -> None:
    """Answers a request for the version, then one for a stream, on which it repeats what it is told."""
    for what in ("version", "attach"):
        connection, _ = listener.accept()
        with connection:
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(4096)
            assert what.encode() in request.splitlines()[0]
            connection.sendall(ANSWERS[what])
            while what == "attach" and (told := connection.recv(4096)):
                connection.sendall(b"\1\0\0\0" + len(told).to_bytes(4, "big") + told)


def test_a_stream_over_tcp_carries_both_ways_and_nothing_is_told_of_it_at_the_end(monkeypatch: pytest.MonkeyPatch):
    """Python 3.13 and later complain of what fails in a finalizer."""
    complaints: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,), daemon=True)
        server.start()
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        channel = DockerChannel(Node(name="node0", node_rank=0, handle="", address=""), *Connection().attach("abc"))
        channel.send(b"hello")
        while (received := channel.receive()) is None:
            pass
        channel.close()
        server.join(10.0)
    assert (received, server.is_alive()) == (b"hello", False)
    del channel
    gc.collect()
    assert complaints == []
