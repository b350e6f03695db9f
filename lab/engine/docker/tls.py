"""A connection to an engine behind TLS, of which one side can be ended alone, as no socket of Python's ssl lets us."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from urllib.parse import urlsplit

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
