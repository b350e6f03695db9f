"""Fault actions: what an agent does to its node, undoes, or inspects, when the lab asks for it.

The module of the action NAME, which `DEEDS` names, has `apply_NAME(context, said)`, `undo_NAME` and `look_NAME`; one
that is missing has nothing to do. Each returns plain data, and raises ValueError or OSError, with a sentence, where it
cannot; done twice it is no error. Those in `STAYING` are done by one process, which is forked for the first of them and
stays: the agent has one thread, and many to serve.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from ....node import processes
from ....node.messages.agent import Config, Do, Done, LookAt, Undo
from ....node.messages.wire import Connection

if TYPE_CHECKING:
    from ....node.agent import Agent
    from ....node.noderun import NodeRun

DEADLINE_S = 30.0
"""A process that has not finished an action by then is killed."""
Asked = Union[Do, Undo, LookAt]
_KINDS = {kind.__name__: kind for kind in (Do, Undo, LookAt)}
_FUNCTIONS = {Do: "apply", Undo: "undo", LookAt: "look"}
_READ_BYTES = 1 << 16


class Context(NamedTuple):
    """What an action may know of where it is done."""

    config: Config
    """Of the node."""
    run: NodeRun | None
    """The run that has the node; None: no run."""
    hogs: set[int]
    """Processes that eat memory, whatever runs come and go."""


class Deeds:
    """The fault actions of one agent, see `lab.node.agent.Extension`.

    Args:
        config: of its node.
        connections: those that it has; an answer to one that is gone is not sent.
        run: returns the run that has the node now.
    """

    def __init__(self, config: Config, connections: Collection[Connection], run: Callable[[], NodeRun | None]) -> None:
        self._config = config
        self._connections = connections
        self._run = run
        self._hogs: set[int] = set()
        self.actions = dict.fromkeys((Do, Undo, LookAt), self.take)
        self._waiting: list[tuple[Connection, Asked]] = []
        """Requests for the process that stays; it is at the first one, where `_is_at_work`."""
        self._is_at_work = False
        self._pid = 0
        """Of that process; 0: there is none."""
        self._line: socket.socket | None = None
        self._received = bytearray()
        self._until = 0.0

    @property
    def pids(self) -> set[int]:
        """The processes that do something, or wait to."""
        return self._hogs | ({self._pid} if self._pid else set())

    @property
    def busy(self) -> bool:
        """Whether something is being done."""
        return bool(self._hogs) or self._is_at_work

    def take(self, connection: Connection, asked: Asked) -> None:
        """Do what is asked for, or have it done, and answer."""
        package: Any = sys.modules[__package__]
        if asked.deed.rpartition(".")[2] in package.STAYING:
            self._waiting.append((connection, asked))
            self._begin_next()
        else:
            self._answer(connection, asked, *self._perform(asked))

    def register(self, selector: selectors.BaseSelector) -> None:
        """Have a selector wait until the process has finished an action, or has ended."""
        if self._line is not None:
            selector.register(self._line, selectors.EVENT_READ)

    def pass_on(self, ready: Collection[int]) -> None:
        """Answer what was done; end what takes too long."""
        if self._line is None:
            return
        late = self._is_at_work and time.monotonic() > self._until
        if late:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        if self._line.fileno() not in ready and not late:
            return
        chunk = b""
        with suppress(OSError):  # it has ended before it read what it was asked
            chunk = self._line.recv(_READ_BYTES)
        self._received += chunk
        if chunk and not self._received.endswith(b"\n"):
            return
        found, wrong = json.loads(self._received) if chunk else ({}, "the process that was to do it was killed")
        if late:
            found, wrong = {}, f"it took longer than {DEADLINE_S:g} s"
        self._received.clear()
        if late or not chunk:
            self._line.close()
            os.waitpid(self._pid, 0)
            self._line, self._pid = None, 0
        if self._is_at_work:
            self._is_at_work = False
            self._answer(*self._waiting.pop(0), found, wrong)
        self._begin_next()

    def _begin_next(self) -> None:
        if self._is_at_work or not self._waiting:
            return
        if self._line is None:
            self._line, its = socket.socketpair()
            agent, self._pid = os.getpid(), os.fork()
            if self._pid == 0:
                self._serve(its, agent)
            its.close()
        self._is_at_work, self._until = True, time.monotonic() + DEADLINE_S
        _, asked = self._waiting[0]
        with suppress(OSError):  # it has just been killed, which is seen as any other end of it
            self._line.sendall(json.dumps([type(asked).__name__, *asked]).encode() + b"\n")

    def _serve(self, line: socket.socket, agent: int) -> None:
        try:
            processes.leave_agent_behind(-1, 2, 2, keep=(line.fileno(),))
            processes.die_with_parent(agent)
            for request in line.makefile("rb"):
                kind, *rest = json.loads(request)
                line.sendall(json.dumps(self._perform(_KINDS[kind](*rest))).encode() + b"\n")
        finally:
            os._exit(0)

    def _perform(self, asked: Asked) -> tuple[dict[str, Any], str]:
        """Return what the action found, and what was wrong."""
        package: Any = sys.modules[__package__]
        feature, _, name = asked.deed.rpartition(".")
        if feature != "faults" or name not in package.DEEDS:
            return {}, f"an agent knows no deed {asked.deed!r}"
        try:
            if why_not := package.lacking(name):
                return {}, why_not
            module = import_module(f".{package.DEEDS[name]}", __package__)
            function = getattr(module, f"{_FUNCTIONS[type(asked)]}_{name}", lambda *_: None)
            return function(Context(self._config, self._run(), self._hogs), asked.said) or {}, ""
        except (ValueError, OSError) as error:
            return {}, str(error)
        except Exception as error:
            return {}, f"{type(error).__name__}: {error}"

    def _answer(self, connection: Connection, asked: Asked, found: dict[str, Any], wrong: str) -> None:
        if connection in self._connections:
            connection.send(Done(asked.id, found, wrong, asked.run))


def extend(agent: Agent) -> Deeds:
    """Return the fault actions of an agent."""
    return Deeds(agent.config, agent.connections, lambda: agent.run)
