"""Messages in the format of Protocol Buffers, as bytes, as far as a writer of a few kinds of messages needs it.

https://protobuf.dev/programming-guides/encoding/ describes it. So an export asks for no package.
"""

from __future__ import annotations

_VARINT, _LENGTH = 0, 2
"""The kinds of fields that are written."""


def varint(number: int) -> bytes:
    """A whole number that is not negative, seven bits a byte."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def whole(field: int, number: int) -> bytes:
    """A field of type uint32, uint64, int32, int64, bool or an enum, which is not negative."""
    return varint(field << 3 | _VARINT) + varint(number)


def packed(field: int, numbers: list[int]) -> bytes:
    """A repeated field of such numbers; nothing where there are none."""
    return message(field, b"".join(map(varint, numbers))) if numbers else b""


def text(field: int, words: str) -> bytes:
    """A field of type string."""
    return message(field, words.encode("utf-8", "replace"))


def message(field: int, body: bytes) -> bytes:
    """A field that is a message."""
    return varint(field << 3 | _LENGTH) + varint(len(body)) + body


def delimited(body: bytes) -> bytes:
    """A message as it stands in a file of many: behind its length."""
    return varint(len(body)) + body
