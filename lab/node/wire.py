"""Messages between the lab and an agent: one JSON object a line.

A reader that attaches in the middle of a line drops what it does not understand and is in step again at the next
newline. Bytes that are not UTF-8 travel as base64.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]


def encode(message: Message) -> bytes:
    """One message as the line that carries it."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"


def pack_bytes(data: bytes) -> Message:
    """Bytes as message fields: `text` where they are UTF-8, else `b64`."""
    try:
        return {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(data).decode("ascii")}


def unpack_bytes(message: Message) -> bytes:
    """The bytes that `pack_bytes` put into a message."""
    if "text" in message:
        return str(message["text"]).encode("utf-8")
    return base64.b64decode(message["b64"])


class LineReader:
    """Turns chunks of bytes into messages."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self.garbled = 0
        """Lines that were not a message."""

    def feed(self, chunk: bytes) -> Iterator[Message]:
        """Every message that ends in this chunk."""
        if b"\n" not in chunk:
            self._chunks.append(chunk)
            return
        lines = (b"".join(self._chunks) + chunk).split(b"\n")
        self._chunks = [lines.pop()]
        for line in lines:
            if not line:
                continue
            try:
                message = json.loads(line.decode("utf-8", "surrogatepass"))
            except (ValueError, binascii.Error):
                self.garbled += 1
                continue
            if isinstance(message, dict):
                yield message
            else:
                self.garbled += 1
