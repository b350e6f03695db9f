"""Sockets to containers of an engine that is spoken to by TLS or ssh.

Of a connection behind TLS one side can be ended alone, as no socket of Python's ssl lets us.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from lab.engine.docker.connection import DirectApi

_CHUNK_BYTES = 1 << 16
_GOODBYE_S = 10.0


class TlsEnd:
    """One end of it, whose `recv` and `send` do not wait, once it is made.

    Args:
        address: such as `https://b:2376`.
        authorities: a file with the certificates of who may sign the engine's; True: those of this machine.
        own: our certificate, and its key.
        timeout_s: how long to wait for the engine.

    Raises:
        OSError: there is no engine, or it is not trusted.
    """

    def __init__(self, address: str, authorities: str | bool, own: tuple[str, str] | None, timeout_s: float) -> None:
        where = urlsplit(address)
        context = ssl.create_default_context(cafile=authorities if isinstance(authorities, str) else None)
        if not authorities:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if own is not None:
            context.load_cert_chain(*own)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname=where.hostname)
        self._early = b""
        """What was read before anybody asked for it."""
        self._held = b""
        """What is still to be sent, and how much of what was to be sent it stands for."""
        self._stands_for = 0
        self._socket = socket.create_connection((where.hostname or "", where.port or 2376), timeout_s)
        try:
            self._shake_hands()
        except BaseException:
            self._socket.close()
            raise

    def _shake_hands(self) -> None:
        done = False
        while not done:
            try:
                self._tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                self._flush()
                self._in.write(self._socket.recv(_CHUNK_BYTES) or self._hung_up())
        self._flush()

    def _hung_up(self) -> bytes:
        raise ConnectionResetError("the engine hung up")

    def _flush(self) -> None:
        self._held += self._out.read()
        while self._held:
            self._held = self._held[self._socket.send(self._held) :]

    def fileno(self) -> int:
        """The descriptor of its socket."""
        return self._socket.fileno()

    def setblocking(self, flag: bool) -> None:
        """Whether its socket waits."""
        self._socket.setblocking(flag)

    def recv(self, most: int) -> bytes:
        """What has come; empty: the engine says no more.

        Raises:
            BlockingIOError: nothing has come yet.
        """
        if self._early:
            taken, self._early = self._early[:most], self._early[most:]
            return taken
        while True:
            try:
                return self._tls.read(most)
            except ssl.SSLWantReadError:
                data = self._socket.recv(_CHUNK_BYTES)
                if not data:
                    return b""
                self._in.write(data)
            except ssl.SSLZeroReturnError:
                return b""

    def send(self, data: bytes) -> int:
        """Send some of it; returns how much.

        Raises:
            BlockingIOError: not yet; call it again with the same.
        """
        if not self._stands_for:
            self._stands_for = self._tls.write(data)
        self._flush()
        sent, self._stands_for = self._stands_for, 0
        return sent

    def shutdown_write(self) -> None:
        """Say that no more will come; what the engine says is still heard."""
        with suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            while more := self._tls.read(_CHUNK_BYTES):  # what has come would be lost
                self._early += more
        with suppress(ssl.SSLError):  # that no answer has come yet
            self._tls.unwrap()
        self._socket.setblocking(True)
        self._socket.settimeout(_GOODBYE_S)
        self._flush()
        self._socket.setblocking(False)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


_PIECE_BYTES = 1 << 16
_LOOK_AGAIN_MS = 1000
_LOOK_SOON_MS = 20
"""A channel of ssh has no descriptor that says when it takes more."""


def open_stream(api: Any, path: str, body: Mapping[str, Any] | None, by_client: Callable[[], Any]) -> Any:
    """The stream that a request becomes: a plain socket, or what docker-py wraps around one.

    Args:
        api: docker-py's low-level client of a remote engine.
        path: what is asked for.
        body: what is sent with it.
        by_client: makes the same request by docker-py.
    """
    if str(api.base_url).startswith("https://"):
        direct = DirectApi(lambda timeout_s: _carried(TlsEnd(api.base_url, api.verify, api.cert, timeout_s)))
        return direct.stream(path, body)
    stream = by_client()
    wrapped = getattr(stream, "_sock", stream)
    return stream if isinstance(wrapped, socket.socket) else _carried(wrapped, stream)


def _carried(far: Any, stream: Any = None) -> socket.socket:
    ours, near = socket.socketpair()
    threading.Thread(target=_carry, args=(far, near, stream), name="carries bytes of a node", daemon=True).start()
    return ours


class _Way:
    """Bytes that go one way."""

    def __init__(self, source: Any, target: Any) -> None:
        self.source, self.target = source, target
        self.held = b""
        self.over = False

    def move(self) -> bool:
        """Take or pass on what can be; whether anything could."""
        if self.over:
            return False
        try:
            if self.held:
                self.held = self.held[self.target.send(self.held) :]
            else:
                self.held = self.source.recv(_PIECE_BYTES)
                self.over = not self.held
        except (BlockingIOError, TimeoutError):  # the latter of ssh
            return False
        except OSError:
            self.over = True
        return True


def _carry(far: Any, near: socket.socket, stream: Any) -> None:
    """Carry bytes both ways until the far end is over, or nobody has the other end of `near` any more."""
    far.setblocking(False)
    near.setblocking(False)
    inward, outward, told = _Way(far, near), _Way(near, far), False
    with near:
        while not inward.over:
            moved = [inward.move(), outward.move()]
            if outward.over and _is_closed(near):
                break
            if outward.over and not told:
                told = True
                with suppress(OSError):
                    far.shutdown_write()
            if not any(moved):
                _await(inward, outward)
    for end in (far, getattr(stream, "_response", None)):
        if end is not None:
            with suppress(OSError):
                end.close()


def _await(*ways: _Way) -> None:
    """Wait until one of them may have something to do."""
    poll, patience_ms, asked = select.poll(), _LOOK_AGAIN_MS, dict[int, int]()
    for way in ways:
        if way.over:
            continue
        end, event = (way.target, select.POLLOUT) if way.held else (way.source, select.POLLIN)
        if way.held and not isinstance(end, socket.socket | TlsEnd):
            patience_ms = _LOOK_SOON_MS
            continue
        asked[end.fileno()] = asked.get(end.fileno(), 0) | event
    for descriptor, events in asked.items():
        poll.register(descriptor, events)
    poll.poll(patience_ms)


def _is_closed(near: socket.socket) -> bool:
    """Whether the other end is closed; to one that only says no more, something may still be said."""
    poll = select.poll()
    poll.register(near, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))
