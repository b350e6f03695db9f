"""Sockets to containers of an engine that is reached through TLS or ssh.

One direction of a TLS connection can be closed alone, which a socket of Python's ssl module does not support.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from lab.engine.docker.connection import DirectApi

_CHUNK_BYTES = 1 << 16


class TlsEnd:
    """One end of a TLS connection; one thread may receive while another one sends.

    Args:
        address: Such as `https://b:2376`.
        authorities: A file with certificates of authorities that may sign the engine's; True: those of this machine.
        own: Files of our certificate and its key.
        timeout_s: Seconds to wait for the engine.

    Raises:
        OSError: No engine answers, or it is not trusted.
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
        self._state, self._sending = threading.Lock(), threading.Lock()
        """Hold the first while using the TLS state, which never blocks, and the second while sending."""
        self._early = b""
        """Data from before the first `recv`."""
        self._socket = socket.create_connection((where.hostname or "", where.port or 2376), timeout_s)
        try:
            self._do_handshake()
        except BaseException:
            self._socket.close()
            raise
        self._socket.settimeout(None)

    def _do_handshake(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                if not (data := self._socket.recv(_CHUNK_BYTES)):
                    raise ConnectionResetError("the engine closed the connection") from None
                self._in.write(data)
            else:
                break
        self._flush()

    def _flush(self) -> None:
        with self._sending:
            with self._state:
                data = self._out.read()
            self._socket.sendall(data)

    def recv(self, size: int) -> bytes:
        """Receive at most this many bytes; empty if the engine has closed its direction."""
        while True:
            with self._state, suppress(ssl.SSLWantReadError):
                if self._early:
                    data, self._early = self._early[:size], self._early[size:]
                    return data
                with suppress(ssl.SSLZeroReturnError):
                    return self._tls.read(size)
                return b""
            if not (data := self._socket.recv(_CHUNK_BYTES)):
                return b""
            with self._state:
                self._in.write(data)

    def sendall(self, data: bytes) -> None:
        """Send all of it."""
        with self._state:
            self._tls.write(data)
        self._flush()

    def shutdown_write(self) -> None:
        """Close this direction; the other direction still delivers data of the engine."""
        with self._state:
            with suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                while data := self._tls.read(_CHUNK_BYTES):  # received data would be lost otherwise
                    self._early += data
            with suppress(ssl.SSLError):  # no answer has arrived yet
                self._tls.unwrap()
        self._flush()

    def close(self) -> None:
        """Close the connection, which also ends a blocked `recv`."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def open_stream(api: Any, path: str, body: Mapping[str, Any] | None) -> socket.socket:
    """Open the stream of a request: to the first process of a container, or, with a body, to a command in it.

    Args:
        api: docker-py's low-level client of a remote engine.
        path: Of the request.
        body: Of the request.
    """
    if str(api.base_url).startswith("https://"):
        direct = DirectApi(lambda timeout_s: connect_locally(TlsEnd(api.base_url, api.verify, api.cert, timeout_s)))
        return direct.stream(path, body)
    asked, identity = urlsplit(path), path.split("/")[2]
    if body is None:
        stream = api.attach_socket(identity, params=dict(parse_qsl(asked.query)))
    else:
        stream = api.exec_start(identity, tty=body["Tty"], socket=True)
    wrapped = getattr(stream, "_sock", stream)
    wrapped.setblocking(True)  # remove the timeout of requests
    return connect_locally(wrapped, getattr(stream, "_response", None))


def connect_locally(far: Any, response: Any = None) -> socket.socket:
    """Return a plain socket that threads connect to a channel; closing it closes the channel.

    Args:
        far: The channel, of TLS or ssh.
        response: Keeps the channel open.
    """
    ours, near = socket.socketpair()
    for relay in (_relay_in, _relay_out):
        threading.Thread(target=relay, args=(far, near, response), name="carries bytes of a node", daemon=True).start()
    return ours


def _relay_in(far: Any, near: socket.socket, response: Any) -> None:
    with suppress(OSError):  # one end is closed
        while data := far.recv(_CHUNK_BYTES):
            near.sendall(data)
    with suppress(OSError):
        near.shutdown(socket.SHUT_RDWR)
    _close(far, response)


def _relay_out(far: Any, near: socket.socket, response: Any) -> None:
    with near:
        with suppress(OSError):
            while data := near.recv(_CHUNK_BYTES):
                far.sendall(data)
            far.shutdown_write()
        closed = select.poll()  # a half-closed socket may still receive
        closed.register(near, 0)
        closed.poll()
        _close(far, response)


def _close(*ends: Any) -> None:
    for end in ends:
        if end is not None:
            with suppress(OSError):
                end.close()
