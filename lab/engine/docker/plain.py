"""A plain socket to a container whose engine is spoken to by TLS or ssh.

What is spoken there comes in pieces of which a descriptor knows nothing, and a channel of ssh is no socket. A thread
carries the bytes between it and one end of a pair of sockets; whoever has the other end has a socket like any other.
"""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from typing import Any

from lab.engine.docker.direct import DirectApi
from lab.engine.docker.tls import TlsEnd

_CHUNK_BYTES = 1 << 16
_LOOK_AGAIN_MS = 1000
_LOOK_SOON_MS = 20
"""A channel of ssh has no descriptor that says when it takes more."""


def attached(api: Any, container: str) -> Any:
    """A stream to the first process of a container: a plain socket, or what docker-py wraps around one."""
    if _by_tls(api):
        return DirectApi(lambda timeout_s: _dial(api, timeout_s)).attach(container)
    return _plain(api.attach_socket(container, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}))


def started(api: Any, execution: str, *, tty: bool) -> Any:
    """A stream to a command that is started in a container, likewise."""
    if _by_tls(api):
        said = {"Tty": tty, "Detach": False}
        return DirectApi(lambda timeout_s: _dial(api, timeout_s)).stream(f"/exec/{execution}/start", said)
    return _plain(api.exec_start(execution, tty=tty, socket=True))


def _by_tls(api: Any) -> bool:
    return str(api.base_url).startswith("https://")


def _dial(api: Any, timeout_s: float) -> socket.socket:
    return _carried(TlsEnd(api.base_url, api.verify, api.cert, timeout_s))


def _plain(stream: Any) -> Any:
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
                self.held = self.source.recv(_CHUNK_BYTES)
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
