"""What the channels of all engines have in common: a socket that is written whole and read without waiting."""

from __future__ import annotations

import socket
import time

from lab.node.connection import await_room
from lab.plan.cluster import Node
from lab.words import format_duration

_SEND_DEADLINE_S = 30.0
_CHUNK_BYTES = 1 << 18


class Stream:
    """A connected stream socket to a node."""

    def __init__(self, node: Node, connection: socket.socket) -> None:
        self.node = node
        self._socket = connection
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """A descriptor that becomes readable when `receive` has something."""
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        """Send all of it."""
        view, end = memoryview(data), time.monotonic() + _SEND_DEADLINE_S
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                left = end - time.monotonic()
                if left <= 0 or not await_room(self._socket.fileno(), left):
                    raise TimeoutError(
                        f"{self.node.name} took no message for {format_duration(_SEND_DEADLINE_S)}"
                    ) from None

    def receive(self) -> bytes | None:
        """What has arrived; None where nothing has yet; empty when the other end is gone."""
        try:
            return self._socket.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def close(self) -> None:
        """Let go of the stream; the agent lives on."""
        self._socket.close()
