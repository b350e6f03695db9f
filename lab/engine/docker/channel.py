"""The stream to an agent in a container: attached to the standard input and output of its first process."""

from __future__ import annotations

from typing import Any

from lab.engine.stream import Stream
from lab.plan.cluster import Node

_HEADER_BYTES = 8


class DockerChannel(Stream):
    """Takes Docker's frames apart: each has 8 bytes of header, its stream in the first, its length in the last four.

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

    def receive(self) -> bytes | None:
        """What has arrived; None where nothing has yet; empty when the other end is gone."""
        chunk = super().receive()
        if not chunk:
            return chunk
        self._buffer += chunk
        return self._unframe() or None

    def _unframe(self) -> bytes:
        parts, position, buffer = [], 0, self._buffer
        while len(buffer) - position >= _HEADER_BYTES:
            stream = buffer[position]
            length = int.from_bytes(buffer[position + 4 : position + 8], "big")
            start = position + _HEADER_BYTES
            if len(buffer) < start + length:
                break
            content = bytes(buffer[start : start + length])
            if stream == 1:
                parts.append(content)
            else:
                self.complaints = (self.complaints + content)[-8192:]
            position = start + length
        del buffer[:position]
        return b"".join(parts)

    def close(self) -> None:
        """Let go of the stream; the agent lives on."""
        super().close()
        if self._attached is not self._socket:
            self._attached.close()
