"""Deeds: what an agent does to its node, takes back, or looks at, when the lab asks for it.

The module of a deed has `apply(context, said)`, `undo(context, said)` and `look(context, said)`. Each returns what it
found, as plain data, and raises ValueError or OSError, with a sentence, where it cannot; done twice it is no error.
The agent has one thread, and many to serve: a module with `APART = True` is called in a process of its own, because it
takes longer than a few milliseconds or imports what agents do not need. It may keep nothing in memory, then.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from . import processes
from .config import Config
from .connection import Connection
from .fault_messages import Do, Done, LookAt, Undo

if TYPE_CHECKING:
    from .noderun import NodeRun

DEEDS: dict[str, str] = {
    "cable": "cable",
    "disk": "disk_faults",
    "hog": "hog",
    "links": "links",
    "link_probe": "link_probe",
    "loader": "loaders",
    "neighbours": "neighbours",
    "shutdown": "shutdown",
    "signal": "signalling",
}
"""The module of this folder that does it, by deed."""
DEADLINE_S = 30.0
"""A process that has not done a deed by then is killed."""
_READ_BYTES = 1 << 16
Asked = Union[Do, Undo, LookAt]
_FUNCTIONS = {Do: "apply", Undo: "undo", LookAt: "look"}


class Context(NamedTuple):
    """What a deed may know of where it is done."""

    config: Config
    """Of the node."""
    run: NodeRun | None
    """The run that has the node; None: no run."""
    hogs: set[int]
    """Processes that eat memory, whatever runs come and go."""


@dataclass
class _Apart:
    """A process that does a deed."""

    connection: Connection
    asked: Asked
    pid: int
    pipe: int
    until: float
    told: bytearray = field(default_factory=bytearray)


class Deeds:
    """The deeds of one agent.

    Args:
        config: of its node.
        connections: those that it has; an answer to one that is gone is not sent.
        run: the run that has the node now.
    """

    def __init__(self, config: Config, connections: Collection[Connection], run: Callable[[], NodeRun | None]) -> None:
        self._config = config
        self._connections = connections
        self._run = run
        self._waiting: list[tuple[Connection, Asked]] = []
        """For their turn: what is done apart is done one after the other."""
        self._apart: _Apart | None = None
        self._hogs: set[int] = set()

    @property
    def pids(self) -> set[int]:
        """The processes that do something."""
        return self._hogs | ({self._apart.pid} if self._apart is not None else set())

    def take(self, connection: Connection, asked: Asked) -> None:
        """Do what is asked for, or have it done, and answer."""
        try:
            apart = getattr(_module(asked.deed), "APART", False)
        except ValueError as error:
            self._answer(connection, asked, {}, str(error))
            return
        if apart:
            self._waiting.append((connection, asked))
            self._begin_next()
        else:
            self._answer(connection, asked, *self._done(asked))

    def _done(self, asked: Asked) -> tuple[dict[str, Any], str]:
        """What it found, and what was wrong."""
        try:
            function = getattr(_module(asked.deed), _FUNCTIONS[type(asked)])
            return function(Context(self._config, self._run(), self._hogs), asked.said) or {}, ""
        except (ValueError, OSError) as error:
            return {}, str(error)
        except Exception as error:
            return {}, f"{type(error).__name__}: {error}"

    def _answer(self, connection: Connection, asked: Asked, found: dict[str, Any], wrong: str) -> None:
        if connection in self._connections:
            connection.send(Done(asked.id, found, wrong, asked.run))

    # -- apart

    def _begin_next(self) -> None:
        if self._apart is not None or not self._waiting:
            return
        connection, asked = self._waiting.pop(0)
        pipe_r, pipe_w = os.pipe2(os.O_CLOEXEC)
        agent, pid = os.getpid(), os.fork()
        if pid == 0:
            self._do_apart(asked, pipe_w, agent)
        os.close(pipe_w)
        os.set_blocking(pipe_r, False)
        self._apart = _Apart(connection, asked, pid, pipe_r, time.monotonic() + DEADLINE_S)

    def _do_apart(self, asked: Asked, pipe: int, agent: int) -> None:
        try:
            processes.leave_agent_behind(-1, 2, 2, keep=(pipe,))
            processes.die_with_parent(agent)
            with open(pipe, "wb") as told:
                told.write(json.dumps(self._done(asked)).encode())
        finally:
            os._exit(0)

    def register(self, selector: selectors.BaseSelector) -> None:
        """Have a selector wait until a process has done its deed."""
        if self._apart is not None:
            selector.register(self._apart.pipe, selectors.EVENT_READ)

    def pass_on(self, ready: Collection[int]) -> None:
        """Answer what was done; end what takes too long."""
        apart = self._apart
        if apart is None:
            return
        late = time.monotonic() > apart.until
        if late:
            with suppress(ProcessLookupError):
                os.kill(apart.pid, signal.SIGKILL)
        if apart.pipe not in ready and not late:
            return
        with suppress(BlockingIOError):
            chunk = os.read(apart.pipe, _READ_BYTES)
            apart.told += chunk
            if chunk:
                return
        os.close(apart.pipe)
        os.waitpid(apart.pid, 0)
        self._apart = None
        try:
            found, wrong = json.loads(apart.told)
        except ValueError:
            found = {}
            wrong = f"it took longer than {DEADLINE_S:g} s" if late else "the process that was to do it was killed"
        self._answer(apart.connection, apart.asked, found, wrong)
        self._begin_next()


def _module(deed: str) -> Any:
    if deed not in DEEDS:
        raise ValueError(f"an agent knows no deed {deed!r}")
    return import_module(f".{DEEDS[deed]}", __package__)
