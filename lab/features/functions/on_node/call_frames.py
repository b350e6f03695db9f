"""What a rank that is called and its caller say to each other: pieces of a known kind and length in a stream of bytes.

The agent passes that stream on as it is. A rank can write there what it likes: lengths are limited by whoever reads.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

BEGIN = b"B"
"""From the caller, first: what the rank is to know before it meets the others; plain data."""
CALL = b"C"
"""From the caller: a function and its arguments."""
MODULE = b"M"
"""From a rank: it lacks a module, by name. From the caller: that module's files, or nothing; plain data."""
READY = b"R"
"""From a rank, first: it is in the process group; plain data."""
VALUE = b"V"
"""From a rank: what the function returned, as data; see `call_values`."""
FAILURE = b"F"
"""From a rank: what the function raised; plain data."""
KEPT = b"K"
"""From a rank: why what the function returned cannot be sent; text."""

LIMIT_BYTES = 64 << 20
"""Largest piece, either way."""
_HEAD = struct.Struct(">cQ")


class TooLong(ValueError):
    """A piece is longer than anything that is allowed."""


def pack(kind: bytes, body: bytes) -> bytes:
    """A piece as bytes."""
    return _HEAD.pack(kind, len(body)) + body


class Pieces:
    """Puts together what arrives in chunks."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._waiting = bytearray()

    def feed(self, chunk: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Every piece that ends in this chunk, as its kind and what is in it.

        Raises:
            TooLong: a piece is to be longer than the limit; nothing can be read after that.
        """
        self._waiting += chunk
        while len(self._waiting) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._waiting)
            if length > self._limit_bytes:
                raise TooLong(f"a piece of {length:,} bytes; at most {self._limit_bytes:,} are allowed")
            end = _HEAD.size + length
            if len(self._waiting) < end:
                return
            body = bytes(self._waiting[_HEAD.size : end])
            del self._waiting[:end]
            yield kind, body
