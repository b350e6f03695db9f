"""Messages as bytes: one JSON object a line, whose `is` names its kind; the only place that encodes and decodes them.

A reader that attaches in the middle of a line drops what is no JSON object and is in step again at the next newline.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple, Union, get_args

from .agent import PROTOCOL, Answer, Request, Statement
from .typed import Misfit, read, write_bytes

Message = Union[Request, Answer, Statement]

_KINDS: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in get_args(Message)}
_OTHER_VERSION = "it is of another version of the lab: make a new cluster with `lab down` and `lab up`"


class Malformed(NamedTuple):
    """A JSON object that is no message."""

    run: str
    """The run that it is about, as far as that can be read."""
    what: str
    """The kind that it would be."""
    reason: str


def kind_of(message: Message) -> str:
    """The kind of a message, as it is called on the wire."""
    return type(message).__name__.lower()


def encode(message: Message) -> bytes:
    """A message as the line that carries it."""
    data = {"is": kind_of(message), **message._asdict()}
    for name, value in data.items():
        if isinstance(value, (bytes, tuple)):
            data[name] = _plain(value)
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return write_bytes(value)
    if hasattr(value, "_asdict"):
        return value._asdict()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def decode(line: bytes) -> Message | Malformed | None:
    """The message that a line carries; None where it carries no JSON object."""
    try:
        data = json.loads(line.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    run, what = (data[key] if isinstance(data.get(key), str) else "" for key in ("run", "is"))
    kind = _KINDS.get(what)
    if kind is None:
        return Malformed(run, what, f"{what!r} is not a kind of message; {_OTHER_VERSION}")
    if "version" in kind._fields and data.get("version") != PROTOCOL:
        spoken = f"{what} speaks version {data.get('version')} of the protocol, not {PROTOCOL}"
        return Malformed(run, what, f"{spoken}; {_OTHER_VERSION}")
    try:
        message: Message = read(kind, data)
    except Misfit as error:
        return Malformed(run, what, f"{what}: {error}")
    return message


class LineReader:
    """Turns chunks of bytes into messages."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[Message | Malformed]:
        """Every message that ends in this chunk."""
        if b"\n" not in chunk:
            self._chunks.append(chunk)
            return
        lines = (b"".join(self._chunks) + chunk).split(b"\n")
        self._chunks = [lines.pop()]
        for line in lines:
            message = decode(line)
            if message is not None:
                yield message
