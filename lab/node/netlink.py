"""Requests to the kernel over netlink, by the standard library alone: agents need them before a library is lent."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Sequence

ROUTE, NETFILTER = 0, 12
"""The parts of the kernel that are asked."""
REQUEST, ACK, DUMP, CREATE, REPLACE, APPEND = 0x1, 0x4, 0x300, 0x400, 0x100, 0x800
_NETLINK = 16
_ERROR, _DONE = 2, 3
_HEADER, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
_NESTED = 0x8000
_DEADLINE_S = 5.0
_LARGEST_BYTES = 1 << 18


def attribute(kind: int, value: bytes) -> bytes:
    """Encode one attribute."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def nested(kind: int, *attributes: bytes) -> bytes:
    """Encode an attribute that holds other attributes."""
    return attribute(kind | _NESTED, b"".join(attributes))


def read_attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Decode attributes: the kind and the value of each."""
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        yield kind, data[_ATTRIBUTE.size : length]
        data = data[max(length + 3 & ~3, _ATTRIBUTE.size) :]


def message(kind: int, flags: int, body: bytes) -> bytes:
    """Encode a request; the kernel answers one with the flag ACK or DUMP."""
    return _HEADER.pack(_HEADER.size + len(body), kind, REQUEST | flags, 1, 0) + body


def send(part: int, messages: Sequence[bytes], answers: int = 1) -> list[bytes]:
    """Send requests in one datagram and wait for the answers.

    Args:
        part: the part of the kernel, ROUTE or NETFILTER.
        messages: see `message`.
        answers: how many of the requests the kernel answers.

    Returns:
        The bodies of what it sent, without acknowledgements.

    Raises:
        OSError: the kernel refuses a request, or does not answer.
    """
    found: list[bytes] = []
    with socket.socket(_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, part) as kernel:
        kernel.settimeout(_DEADLINE_S)
        kernel.send(b"".join(messages))
        while answers > 0:
            data = kernel.recv(_LARGEST_BYTES)
            while data:
                length, what, *_ = _HEADER.unpack_from(data)
                answer, data = data[_HEADER.size : length], data[length + 3 & ~3 :]
                if what == _ERROR and (code := -struct.unpack_from("=i", answer)[0]):
                    raise OSError(code, f"its kernel refuses that: {os.strerror(code)}")
                if what in (_ERROR, _DONE):
                    answers -= 1
                else:
                    found.append(answer)
    return found
