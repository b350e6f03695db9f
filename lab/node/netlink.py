"""Messages to and from the kernel's netlink: attributes, requests, and a socket that waits for each answer.

Root's own, with the standard library alone: what speaks netlink for others takes half a second to import, or is a
program that few images have.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

ROUTE, NETFILTER = 0, 12
"""Families: devices and their queues; packet filters."""
REQUEST, ACK, DUMP, CREATE, EXCLUSIVE, REPLACE, APPEND = 0x1, 0x4, 0x300, 0x400, 0x200, 0x100, 0x800
_ERROR, _DONE = 0x2, 0x3
_NESTED = 0x8000
_KIND_MASK = 0x3FFF
_EXTENDED_ACK, _CAPPED_ACK, _SOL_NETLINK = 11, 10, 270
_TOLD, _CAPPED = 0x200, 0x100
_WHY = 1
_PATIENCE_S = 5.0
_LARGEST = 1 << 18


class Refused(OSError):
    """The kernel does not do it."""

    def __str__(self) -> str:
        return f"its kernel refuses that: {self.strerror}"


class Message(NamedTuple):
    """A request, without its header's length and number."""

    kind: int
    flags: int
    body: bytes


def attribute(kind: int, value: bytes | int | str) -> bytes:
    """One attribute: bytes as they are, text with its end, a number as 32 bits in the order of this machine."""
    if isinstance(value, str):
        value = value.encode() + b"\0"
    elif isinstance(value, int):
        value = struct.pack("=I", value)
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def nested(kind: int, *inside: bytes) -> bytes:
    """An attribute made of attributes."""
    return attribute(kind | _NESTED, b"".join(inside))


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and value of each attribute, in order."""
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if not 4 <= length <= len(data):
            return
        yield kind & _KIND_MASK, data[4:length]
        data = data[(length + 3) & ~3 :]


class Netlink:
    """A socket of one family; use it in a `with`."""

    def __init__(self, family: int) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family)
        self._socket.setsockopt(_SOL_NETLINK, _EXTENDED_ACK, 1)
        self._socket.setsockopt(_SOL_NETLINK, _CAPPED_ACK, 1)
        self._socket.settimeout(_PATIENCE_S)
        self._socket.bind((0, 0))
        self._last = 0

    def __enter__(self) -> Netlink:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def do(self, message: Message) -> None:
        """Send one request and wait until it is done.

        Raises:
            Refused: it is not.
        """
        self.do_all([message._replace(flags=message.flags | ACK)])

    def do_all(self, messages: Sequence[Message]) -> None:
        """Send requests as one, and wait for an answer to each that asks for one.

        Raises:
            Refused: the first that was not done.
        """
        data, awaited = b"", set()
        for message in messages:
            self._last += 1
            data += self._packed(message)
            if message.flags & ACK:
                awaited.add(self._last)
        self._socket.send(data)
        refused: Refused | None = None
        while awaited:
            for kind, number, body in self._receive():
                if kind != _ERROR or not body:
                    continue
                refused = refused or _refusal(body)
                if number not in awaited and refused is not None:  # the whole of them
                    raise refused
                awaited.discard(number)
        if refused is not None:
            raise refused

    def dump(self, message: Message) -> list[bytes]:
        """The bodies of all that a question finds.

        Raises:
            Refused: it cannot be asked.
        """
        self._last += 1
        self._socket.send(self._packed(message._replace(flags=message.flags | DUMP)))
        found: list[bytes] = []
        while True:
            for kind, number, body in self._receive():
                if number != self._last:
                    continue
                if kind == _DONE:
                    return found
                if kind == _ERROR:
                    refused = _refusal(body)
                    if refused is not None:
                        raise refused
                    return found
                found.append(body)

    def _packed(self, message: Message) -> bytes:
        head = struct.pack("=IHHII", 16 + len(message.body), message.kind, message.flags | REQUEST, self._last, 0)
        return head + message.body + b"\0" * (-len(message.body) % 4)

    def _receive(self) -> Iterator[tuple[int, int, bytes]]:
        data = self._socket.recv(_LARGEST)
        while len(data) >= 16:
            length, kind, flags, number, _ = struct.unpack_from("=IHHII", data)
            if not 16 <= length <= len(data):
                return
            body = data[16:length]
            yield kind, number, struct.pack("=H", flags) + body if kind == _ERROR else body
            data = data[(length + 3) & ~3 :]


def _refusal(body: bytes) -> Refused | None:
    """What the kernel says against a request; the body begins with the flags of its answer."""
    flags, code = struct.unpack_from("=Hi", body)
    if code == 0:
        return None
    rest = body[2 + 4 + 16 :]
    if not flags & _CAPPED:  # the request itself comes back first
        rest = rest[struct.unpack_from("=I", body, 6)[0] - 16 :]
    told = next((value for kind, value in attributes(rest) if kind == _WHY), b"") if flags & _TOLD else b""
    why = told.rstrip(b"\0").decode("utf-8", "replace") or os.strerror(-code)
    return Refused(-code, why)


def unless(allowed: int, refused: Refused) -> None:
    """Let a refusal pass that says what is so already.

    Raises:
        Refused: it says something else.
    """
    if refused.errno != allowed:
        raise refused


EXISTS, ABSENT = errno.EEXIST, errno.ENOENT
