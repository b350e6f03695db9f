"""Sockets to containers of an engine that is spoken to by TLS or ssh."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from lab.engine.docker.connection import DirectApi

_CHUNK_BYTES = 1 << 16
T = TypeVar("T")


class TlsEnd:
    """One end of a connection behind TLS; one thread may receive while another one sends.

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
        plain = socket.create_connection((where.hostname or "", where.port or 2376), timeout_s)
        self._tls = context.wrap_socket(plain, server_hostname=where.hostname)
        self._tls.setblocking(False)
        self._using = threading.Lock()
        """Held while something is done with the state of TLS, which never waits."""

    def _repeat(self, action: Callable[[], T]) -> T:
        """Do something as soon as nothing has to be waited for."""
        while True:
            with self._using:
                try:
                    return action()
                except ssl.SSLWantReadError:
                    event = select.POLLIN
                except ssl.SSLWantWriteError:
                    event = select.POLLOUT
            waiting = select.poll()
            waiting.register(self._tls, event)
            waiting.poll()

    def recv(self, size: int) -> bytes:
        """What comes next, at most so much; empty: the engine says no more."""
        return self._repeat(lambda: self._tls.recv(size))

    def sendall(self, data: bytes) -> None:
        """Send all of it."""
        while data:
            data = data[self._repeat(lambda left=data: self._tls.send(left)) :]  # type: ignore[misc]

    def close(self) -> None:
        """Hang up; who waits for what comes waits no more."""
        with self._using, self._tls, suppress(OSError):
            self._tls.shutdown(socket.SHUT_RDWR)


def open_stream(api: Any, container: str, path: str) -> socket.socket:
    """A stream to the first process of a container.

    Args:
        api: docker-py's low-level client of a remote engine.
        container: the engine's id of it.
        path: what is asked for.
    """
    if str(api.base_url).startswith("https://"):
        return DirectApi(lambda timeout_s: carry(TlsEnd(api.base_url, api.verify, api.cert, timeout_s))).stream(path)
    channel = api.attach_socket(container, params=dict(parse_qsl(urlsplit(path).query)))
    channel.setblocking(True)  # it has the timeout of requests
    return carry(channel)


def carry(far: Any) -> socket.socket:
    """A plain socket for what threads carry to and from a channel of TLS or ssh; with one, the other is closed."""
    ours, near = socket.socketpair()

    def pass_on(source: Any, target: Any) -> None:
        with suppress(OSError, ValueError):  # one of both is closed
            while data := source.recv(_CHUNK_BYTES):
                target.sendall(data)
        with suppress(OSError):
            near.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            far.close()

    def receive() -> None:
        pass_on(far, near)
        sending.join()
        near.close()

    sending = threading.Thread(target=pass_on, args=(near, far), name="sends bytes to a node", daemon=True)
    sending.start()
    threading.Thread(target=receive, name="receives bytes of a node", daemon=True).start()
    return ours
