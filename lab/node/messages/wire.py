"""Encode messages as bytes: one JSON object a line, whose `is` names its kind. Also the agent's end of the stream.

The bytes of a field `data` follow the object, which has their number. Each of their lines ends with a byte that no text
has: a client that begins to read in the middle cannot take the contents of a file for a message.
"""

from __future__ import annotations

import json
import os
import re
import select
import selectors
import socket
import time
from contextlib import suppress
from typing import Any, NamedTuple

from .agent import PROTOCOL, Cleaning, Message
from .typed import Misfit, read_typed

_LINE_END = b"\xfa\n"
"""Replaces a line feed in data."""
_FIND_LINE_END = re.compile(_LINE_END)
_OTHER_VERSION = "it is of another version of the lab: make a new cluster with `lab down` and `lab up`"


class Malformed(NamedTuple):
    """A JSON object that is no message."""

    run: str
    """The run of the message, if it can be read."""
    what: str
    """The kind of the message."""
    reason: str
    spoken: int = 0
    """Version of the protocol that the message has, if it is another one; 0: it is not."""


def kind_of(message: Message) -> str:
    """Return the name of a message's kind on the wire."""
    return type(message).__name__.lower()


def encode_message(message: Message) -> bytes:
    """Return a message as a line, and its data."""
    fields, data = {"is": kind_of(message), **to_plain_data(message)}, b""
    if "data" in fields:
        data = fields["data"].replace(b"\n", _LINE_END) + _LINE_END
        fields["data"] = len(data)
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n" + data


def to_plain_data(value: Any) -> Any:
    """Return a message, a NamedTuple, or a field of one as plain data."""
    if hasattr(value, "_asdict"):
        return {name: to_plain_data(item) for name, item in value._asdict().items()}
    return [to_plain_data(item) for item in value] if isinstance(value, tuple) else value


def decode_message(line: bytes) -> Message | Malformed | None:
    """Return the message in a line, which has no data, or Malformed; None if the line has no JSON object."""
    fields = _read_fields(line)
    return None if fields is None else _decode_fields(fields)


def _read_fields(line: bytes) -> dict[str, Any] | None:
    with suppress(ValueError, RecursionError):
        fields = json.loads(line.decode("utf-8", "surrogatepass"))
        return fields if isinstance(fields, dict) else None
    return None


def _decode_fields(data: dict[str, Any]) -> Message | Malformed:
    run, what = (data[key] if isinstance(data.get(key), str) else "" for key in ("run", "is"))
    if (kind := Message.kinds.get(what)) is None:
        return Malformed(run, what, f"{what!r} is not a kind of message; {_OTHER_VERSION}")
    if "version" in kind._fields and data.get("version") != PROTOCOL:
        spoken = f"{what} speaks version {data.get('version')} of the protocol, not {PROTOCOL}"
        version = data.get("version")
        return Malformed(run, what, f"{spoken}; {_OTHER_VERSION}", version if isinstance(version, int) else 0)
    try:
        return read_typed(kind, data)
    except Misfit as error:
        return Malformed(run, what, f"{what}: {error}")


class LineReader:
    """Splits chunks of bytes into messages."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        """What has arrived of the next message."""
        self._fields: dict[str, Any] | None = None
        """Of a message whose data is not complete."""
        self._missing_bytes = 0

    def feed(self, chunk: bytes) -> list[Message | Malformed]:
        """Return every message that ends in this chunk."""
        self.chunks.append(chunk)
        self._missing_bytes -= len(chunk)
        if self._missing_bytes > 0 or (self._fields is None and b"\n" not in chunk):
            return []
        buffer, at, messages = b"".join(self.chunks), 0, []
        while self._fields is not None or (end := buffer.find(b"\n", at)) >= 0:
            if self._fields is None:
                fields, at = _read_fields(buffer[at:end]), end + 1
            else:
                fields, self._fields = self._fields, None
            if fields is None:
                continue
            if type(size := fields.get("data")) is int and size >= len(_LINE_END):
                self._missing_bytes = at + size - len(buffer)
                if self._missing_bytes > 0:
                    self._fields = fields
                    break
                lines = _FIND_LINE_END.split(buffer[at : at + size - len(_LINE_END)])  # faster than bytes.replace
                fields["data"], at = b"\n".join(lines), at + size
            messages.append(_decode_fields(fields))
        self.chunks = [buffer[at:]]
        return messages


_BACKLOG_BYTES = 1 << 20
"""While more than this waits to be sent, the agent does not read from workers. Their pipes fill, and they wait: nothing
is lost."""
_MOST_WAITING = 4096
"""Limit for connections that wait while the agent is paused: each query of a paused node is one."""
_DRAIN_DEADLINE_S = 10.0
"""The agent gives up a client that has not read anything for this long."""


def open_listener(path: str) -> socket.socket:
    """Return a socket that listens at a path; it accepts connections as soon as the path exists."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"{path}.new")
    listener.listen(_MOST_WAITING)
    listener.setblocking(False)
    os.rename(f"{path}.new", path)
    return listener


def await_writable(descriptor: int, seconds: float) -> bool:
    """Wait until a descriptor of any number is writable; return whether it is."""
    asked = select.poll()
    asked.register(descriptor, select.POLLOUT)
    return bool(asked.poll(seconds * 1000))


class Connection:
    """A pair of descriptors for one client, which may not have come yet."""

    def __init__(self, read_fd: int, write_fd: int, owner: socket.socket | None = None) -> None:
        self.read_fd, self.write_fd, self.owner = read_fd, write_fd, owner
        self.reader = LineReader()
        self._waiting = bytearray()
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)

    def send(self, message: Message) -> None:
        """Queue a message, and send what can be sent without waiting."""
        self._waiting += encode_message(message)
        self.flush()

    def flush(self) -> None:
        """Send what can be sent without waiting."""
        try:
            while self._waiting:
                with memoryview(self._waiting) as view, view[:_BACKLOG_BYTES] as part:
                    written = os.write(self.write_fd, part)
                del self._waiting[:written]
        except BlockingIOError:
            pass
        except OSError:  # the other end is closed
            self._waiting.clear()

    def receive(self) -> bytes | None:
        """Return what has arrived; None if nothing has yet; empty if the other end is closed."""
        try:
            return os.read(self.read_fd, 1 << 18)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            return b""

    @property
    def congested(self) -> bool:
        """Whether so many bytes wait for the client that the agent should add nothing."""
        return len(self._waiting) > _BACKLOG_BYTES

    def drain(self) -> None:
        """Wait until it is not congested; drop everything for a client that does not read for ten seconds."""
        while self.congested:
            if not await_writable(self.write_fd, _DRAIN_DEADLINE_S):
                self._waiting.clear()
            self.flush()

    @property
    def is_idle(self) -> bool:
        """Whether everything is sent, and no part of a message has arrived."""
        return not (self._waiting or any(self.reader.chunks))

    def register(self, selector: selectors.BaseSelector) -> None:
        """Have a selector wait until it is readable, and writable if something waits to be sent."""
        events = {self.read_fd: selectors.EVENT_READ}
        if self._waiting:
            events[self.write_fd] = events.get(self.write_fd, 0) | selectors.EVENT_WRITE
        for fd, event in events.items():
            selector.register(fd, event)


_CLEANING_EVERY_S = 1.0


class Sender:
    """Sends messages to the lab, each with its node and run.

    Args:
        run: name of the run.
        node: name of this node.
        client: owner of the run; None: it has gone.
    """

    def __init__(self, run: str, node: str, client: Connection | None) -> None:
        self.run, self.node, self.client = run, node, client
        self._cleaning_sent = 0.0

    def __call__(self, message: Any) -> None:
        """Send a message."""
        if self.client is not None:
            node = {"node": self.node} if "node" in message._fields else {}
            self.client.send(message._replace(run=self.run, **node))

    @property
    def congested(self) -> bool:
        """Whether so many bytes wait for the client that the agent should add nothing."""
        return self.client is not None and self.client.congested

    def drain(self) -> None:
        """Wait until it is not congested."""
        if self.client is not None:
            self.client.drain()

    def send_cleaning(self) -> None:
        """Report once a second that the cleanup continues: clients wait for the end of the run with a deadline."""
        now = time.monotonic()
        if now - self._cleaning_sent > _CLEANING_EVERY_S:
            self._cleaning_sent = now
            self(Cleaning(self.run))


def standard_streams() -> Connection:
    """Return the connection of a container's first process; from now on its prints go to standard error."""
    out = os.dup(1)
    os.set_inheritable(out, False)
    os.dup2(2, 1)
    return Connection(0, out)
