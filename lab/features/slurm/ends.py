"""The ends of what the holder of a cluster passes on between agents and clients."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

CHUNK_BYTES = 1 << 18
"""So much is passed on at a time."""


class End:
    """One end of what is passed on: bytes that wait to be written to a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.waiting = bytearray()
        self.taken = time.monotonic()
        """When it last took something, or nothing waited."""
        os.set_blocking(descriptor, False)

    def flush(self) -> None:
        """Write what can be written.

        Raises:
            OSError: nobody is there.
        """
        with suppress(BlockingIOError):
            while self.waiting:
                del self.waiting[: os.write(self.descriptor, self.waiting[:CHUNK_BYTES])]
                self.taken = time.monotonic()

    def give(self, data: bytes) -> None:
        """Add to what waits."""
        if not self.waiting:
            self.taken = time.monotonic()
        self.waiting += data


class Client(End):
    """Who is connected to a node."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection.fileno())
        self.connection = connection
        self.begun = b""
        """The beginning of a line, of which the rest has not come."""
