"""Fault actions: what an agent does to its node, undoes, or inspects, when the lab asks for it.

The module of an action has `apply(context, said)`, `undo(context, said)` and `look(context, said)`; that of several has
`apply_NAME` and so on. A function that is missing has nothing to do. Each returns plain data, and raises ValueError or
OSError, with a sentence, where it cannot; done twice it is no error. A feature lists its modules in `DEEDS` of its
package for nodes; its actions are FEATURE.NAME.

The agent has one thread, and many to serve: a module with `APART = True` is called in a process of its own, because it
takes longer than a few milliseconds or imports what agents do not need. It may keep nothing in memory, then. Those that
the package lists in `STAYING` are done by one process that stays.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from ....node import processes
from ....node.config import Config
from ....node.connection import Connection
from ....node.messages.agent import Do, Done, LookAt, Undo

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
        self._once = Apart(self._perform, self._answer, stays=False)
        self._staying = Apart(self._perform, self._answer, stays=True)
        self.actions = dict.fromkeys((Do, Undo, LookAt), self.take)

    @property
    def pids(self) -> set[int]:
        """The processes that do something, or wait to."""
        return self._hogs | {apart.pid for apart in (self._once, self._staying) if apart.pid}

    @property
    def busy(self) -> bool:
        """Whether something is being done."""
        return bool(self._hogs) or self._once.busy or self._staying.busy

    def take(self, connection: Connection, asked: Asked) -> None:
        """Do what is asked for, or have it done, and answer."""
        try:
            package, name = _home(asked.deed)
            stays = name in getattr(package, "STAYING", ())
            apart = stays or getattr(_module(package, name), "APART", False)
        except ValueError as error:
            self._answer(connection, asked, {}, str(error))
            return
        if apart:
            (self._staying if stays else self._once).take(connection, asked)
        else:
            self._answer(connection, asked, *self._perform(asked))

    def register(self, selector: selectors.BaseSelector) -> None:
        """Have a selector wait until a process has finished an action."""
        for apart in (self._once, self._staying):
            apart.register(selector)

    def pass_on(self, ready: Collection[int]) -> None:
        """Answer what was done; end what takes too long."""
        for apart in (self._once, self._staying):
            apart.pass_on(ready)

    def _perform(self, asked: Asked) -> tuple[dict[str, Any], str]:
        """Return what the action found, and what was wrong."""
        try:
            package, name = _home(asked.deed)
            why_not = package.lacking(name) if name in getattr(package, "STAYING", ()) else ""
            if why_not:
                return {}, why_not
            module, how = _module(package, name), _FUNCTIONS[type(asked)]
            function = getattr(module, f"{how}_{name}", None) or getattr(module, how, None)
            if function is None:
                return {}, ""
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


def _home(named: str) -> tuple[Any, str]:
    """The package that has an action, and its name there."""
    feature, _, name = named.rpartition(".")
    package: Any = None
    with suppress(ImportError, ValueError):
        package = import_module(f"...{feature}.on_node", __package__)
    if name not in getattr(package, "DEEDS", ()):
        raise ValueError(f"an agent knows no deed {named!r}")
    return package, name


def _module(package: Any, name: str) -> Any:
    return import_module(f".{package.DEEDS[name]}", package.__name__)


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
                line.sendall(json.dumps(self._do(_KINDS[kind](*rest))).encode() + b"\n")
                if not self._stays:
                    break
        finally:
            os._exit(0)
