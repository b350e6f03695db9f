"""The stream to an agent in a container: attached to the standard input and output of its first process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lab.engine.ready import Stream
from lab.plan.cluster import Node

_HEADER_BYTES = 8


def take_frames(buffer: bytearray) -> Iterator[tuple[int, bytes]]:
    """Takes Docker's frames off a buffer: the stream and the content of each that has arrived whole.

    Each has 8 bytes of header, its stream in the first, its length in the last four.
    """
    while len(buffer) >= _HEADER_BYTES:
        end = _HEADER_BYTES + int.from_bytes(buffer[4:_HEADER_BYTES], "big")
        if len(buffer) < end:
            return
        frame = buffer[0], bytes(buffer[_HEADER_BYTES:end])
        del buffer[:end]
        yield frame


def close_answer(attached: Any) -> None:
    """Close the answer from which docker-py took a stream, before the stream: else Python 3.13 complains of it."""
    answer = getattr(attached, "_response", None)
    if answer is not None:
        answer.close()


class DockerChannel(Stream):
    """A stream of which the agent's standard output is received.

    Args:
        node: whose agent is at the other end.
        attached: a socket, or what docker-py's `attach_socket` returned.
    """

    def __init__(self, node: Node, attached: Any) -> None:
        super().__init__(node, getattr(attached, "_sock", attached))
        self._attached = attached
        self._buffer = bytearray()
        self.complaints = b""
        """The last of what the agent wrote to standard error."""

    def attach(self, attached: Any) -> None:
        """Go on with another stream to the node, which was started anew."""
        self.close()
        super().__init__(self.node, getattr(attached, "_sock", attached))
        self._attached = attached
        self._buffer.clear()

    def receive(self) -> bytes | None:
        """What has arrived; None where nothing has yet; empty when the other end is gone."""
        chunk = super().receive()
        if not chunk:
            return chunk
        self._buffer += chunk
        parts = []
        for stream, content in take_frames(self._buffer):
            if stream == 1:
                parts.append(content)
            else:
                self.complaints = (self.complaints + content)[-8192:]
        return b"".join(parts) or None

    def close(self) -> None:
        """Let go of the stream; the agent lives on."""
        close_answer(self._attached)
        super().close()
        if self._attached is not self._socket:
            self._attached.close()
