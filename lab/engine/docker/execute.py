"""A command in a container with this process's standard streams, with or without a terminal."""

from __future__ import annotations

import fcntl
import os
import selectors
import signal
import socket
import struct
import sys
import termios
import tty as terminal
from contextlib import suppress
from typing import Any

from lab.engine.docker.channel import close_answer, take_frames
from lab.engine.docker.plain import started
from lab.errors import ClusterError
from lab.plan.cluster import Node


def execute(api: Any, node: Node, argv: list[str], *, tty: bool) -> int:
    """Run a command in a node, with this process's terminal where `tty` is set; returns its exit code.

    Raises:
        ClusterError: there is no such command in the node.
    """
    created = api.exec_create(
        node.handle, argv, stdin=True, tty=tty, environment={"TERM": os.environ.get("TERM", "xterm")} if tty else None
    )
    stream = started(api, created["Id"], tty=tty)
    connection: socket.socket = getattr(stream, "_sock", stream)
    saved = termios.tcgetattr(0) if tty else None
    try:
        if tty:
            terminal.setraw(0)
            _resize(api, created["Id"])
            signal.signal(signal.SIGWINCH, lambda *_: _resize(api, created["Id"]))
        _relay(connection, framed=not tty)
    finally:
        if saved is not None:
            termios.tcsetattr(0, termios.TCSADRAIN, saved)
        close_answer(stream)
        connection.close()
    code = int(api.exec_inspect(created["Id"])["ExitCode"])
    if code in (126, 127):
        sys.stdout.flush()
        raise ClusterError(f"{node.name} cannot run {argv[0]!r} (exit code {code})")
    return code


def _relay(connection: socket.socket, *, framed: bool) -> None:
    buffer = bytearray()
    connection.setblocking(True)
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        try:
            selector.register(0, selectors.EVENT_READ)
        except (PermissionError, ValueError, OSError):
            connection.shutdown(socket.SHUT_WR)  # standard input is a file or closed
        while True:
            for key, _ in selector.select():
                if key.fd == 0:
                    typed = os.read(0, 65536)
                    if typed:
                        connection.sendall(typed)
                    else:
                        selector.unregister(0)
                        connection.shutdown(socket.SHUT_WR)
                    continue
                chunk = connection.recv(65536)
                if not chunk:
                    return
                if not framed:
                    _write(1, chunk)
                    continue
                buffer += chunk
                for stream, content in take_frames(buffer):
                    _write(2 if stream == 2 else 1, content)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _resize(api: Any, execution: str) -> None:
    import docker.errors

    rows, columns, _, _ = struct.unpack("4H", fcntl.ioctl(1, termios.TIOCGWINSZ, b"\0" * 8))
    with suppress(docker.errors.APIError):  # a command that is quick has ended already
        api.exec_resize(execution, height=rows, width=columns)
