"""A process beside the agent that does deeds, one after the other; what comes to nothing is answered for too."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Union

from .. import processes
from ..connection import Connection
from ..messages.agent import Do, LookAt, Undo

DEADLINE_S = 30.0
"""A process that has not done a deed by then is killed."""
Asked = Union[Do, Undo, LookAt]
_ASKED = {kind.__name__: kind for kind in (Do, Undo, LookAt)}
_READ_BYTES = 1 << 16


class Apart:
    """A process that is forked for the first deed.

    Args:
        do: does one, in that process; what it found, and what was wrong.
        answer: is told who asked, what was asked, what was found, and what was wrong.
        stays: whether it is there for the next one as well, with what it has imported and keeps in mind.
    """

    def __init__(
        self,
        do: Callable[[Asked], tuple[dict[str, Any], str]],
        answer: Callable[[Connection, Asked, dict[str, Any], str], None],
        *,
        stays: bool,
    ) -> None:
        self._do, self._answer, self._stays = do, answer, stays
        self._waiting: list[tuple[Connection, Asked]] = []
        """The first one is being done, where `busy`."""
        self.busy = False
        self.pid = 0
        """0: there is no process."""
        self._line: socket.socket | None = None
        self._told = bytearray()
        self._until = 0.0

    def take(self, connection: Connection, asked: Asked) -> None:
        """Have a deed done, in its turn."""
        self._waiting.append((connection, asked))
        self._begin_next()

    def register(self, selector: selectors.BaseSelector) -> None:
        """Have a selector wait until it has done something, or has ended."""
        if self._line is not None:
            selector.register(self._line, selectors.EVENT_READ)

    def pass_on(self, ready: Collection[int]) -> None:
        """Answer what was done; end what takes too long."""
        if self._line is None:
            return
        late = self.busy and time.monotonic() > self._until
        if late:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        if self._line.fileno() not in ready and not late:
            return
        chunk = b""
        with suppress(OSError):  # it has ended before it read what it was asked
            chunk = self._line.recv(_READ_BYTES)
        self._told += chunk
        if chunk and not self._told.endswith(b"\n"):
            return
        found, wrong = json.loads(self._told) if chunk else ({}, "the process that was to do it was killed")
        if late:
            found, wrong = {}, f"it took longer than {DEADLINE_S:g} s"
        self._told.clear()
        if late or not chunk or not self._stays:
            self._line.close()
            os.waitpid(self.pid, 0)
            self._line, self.pid = None, 0
        if self.busy:
            self.busy = False
            self._answer(*self._waiting.pop(0), found, wrong)
        self._begin_next()

    def _begin_next(self) -> None:
        if self.busy or not self._waiting:
            return
        if self._line is None:
            self._fork()
        self.busy, self._until = True, time.monotonic() + DEADLINE_S
        _, asked = self._waiting[0]
        with suppress(OSError):  # it has just been killed, which is seen as any other end of it
            self._line.sendall(json.dumps([type(asked).__name__, *asked]).encode() + b"\n")  # type: ignore[union-attr]

    def _fork(self) -> None:
        self._line, its = socket.socketpair()
        agent, self.pid = os.getpid(), os.fork()
        if self.pid == 0:
            self._serve(its, agent)
        its.close()

    def _serve(self, line: socket.socket, agent: int) -> None:
        try:
            processes.leave_agent_behind(-1, 2, 2, keep=(line.fileno(),))
            processes.die_with_parent(agent)
            for said in line.makefile("rb"):
                kind, *rest = json.loads(said)
                line.sendall(json.dumps(self._do(_ASKED[kind](*rest))).encode() + b"\n")
                if not self._stays:
                    break
        finally:
            os._exit(0)
