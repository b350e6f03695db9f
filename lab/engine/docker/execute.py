"""Run a command in a container with this process's standard streams, with or without a terminal."""

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
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from lab.engine.docker.connection import Connection, Refused, read_frames
from lab.errors import ClusterError
from lab.node.files import write_all
from lab.plan.cluster import Node

_INPUT_CHUNK_BYTES = 4096
"""Less than the free space of a connection that is writable at all."""


def run_command(connection: Connection, node: Node, argv: Sequence[str], *, tty: bool) -> int:
    """Run a command in a node, with this process's terminal if `tty` is set; return its exit code.

    Raises:
        ClusterError: the node has no such command.
    """
    attached = dict.fromkeys(("AttachStdin", "AttachStdout", "AttachStderr"), True)
    asked: dict[str, Any] = {"Cmd": [*argv], "Tty": tty, **attached}
    if tty:
        asked["Env"] = [f"TERM={os.environ.get('TERM', 'xterm')}"]
    execution = connection.ask("POST", f"/containers/{node.handle}/exec", asked)["Id"]
    stream = connection.stream(f"/exec/{execution}/start", {"Tty": tty, "Detach": False})
    saved = termios.tcgetattr(0) if tty else None
    try:
        if tty:
            terminal.setraw(0)
            _resize(connection, execution)
            signal.signal(signal.SIGWINCH, lambda *_: _resize(connection, execution))
        _relay(stream, framed=not tty)
    finally:
        if saved is not None:
            termios.tcsetattr(0, termios.TCSADRAIN, saved)
        stream.close()
    code = int(connection.ask("GET", f"/exec/{execution}/json")["ExitCode"])
    if code in (126, 127):
        sys.stdout.flush()
        raise ClusterError(f"{node.name} cannot run {argv[0]!r} (exit code {code})")
    return code


def _relay(connection: socket.socket, *, framed: bool) -> None:
    """Relay input to the command and its output to this process until it ends; neither blocks the other."""
    buffer, typed, is_open = bytearray(), b"", True
    connection.setblocking(True)
    while True:
        with selectors.PollSelector() as selector:  # standard input may be a file
            selector.register(connection, selectors.EVENT_READ | (selectors.EVENT_WRITE if typed else 0))
            if is_open and not typed:
                selector.register(0, selectors.EVENT_READ)
            ready = {key.fd: events for key, events in selector.select()}
        events = ready.get(connection.fileno(), 0)
        try:
            if events & selectors.EVENT_WRITE:
                typed = typed[connection.send(typed) :]
            elif 0 in ready and not (typed := _read_typed()):
                is_open = False
                connection.shutdown(socket.SHUT_WR)
        except OSError:  # the command has ended
            typed, is_open = b"", False
        if not events & selectors.EVENT_READ:
            continue
        if not (chunk := connection.recv(65536)):
            return
        if not framed:
            write_all(1, chunk)
            continue
        buffer += chunk
        for stream, content in read_frames(buffer):
            write_all(2 if stream == 2 else 1, content)


def _read_typed() -> bytes:
    """Read a piece of standard input; empty at its end, or if it is closed."""
    with suppress(OSError):
        return os.read(0, _INPUT_CHUNK_BYTES)
    return b""


def _resize(connection: Connection, execution: str) -> None:
    rows, columns, _, _ = struct.unpack("4H", fcntl.ioctl(1, termios.TIOCGWINSZ, b"\0" * 8))
    with suppress(Refused):  # a quick command may have ended already
        connection.request("POST", f"/exec/{execution}/resize?h={rows}&w={columns}")
