"""The deeds of one agent: done by itself, or by a process beside it."""

from __future__ import annotations

import selectors
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..config import Config
from ..connection import Connection
from ..messages.agent import Do, Done, LookAt, Undo
from . import Context
from .apart import Apart, Asked

if TYPE_CHECKING:
    from ..noderun import NodeRun

_FUNCTIONS = {Do: "apply", Undo: "undo", LookAt: "look"}


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
        self._hogs: set[int] = set()
        self._once = Apart(self._done, self._answer, stays=False)
        self._staying = Apart(self._done, self._answer, stays=True)

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
            package, deed = _home(asked.deed)
            if deed in getattr(package, "STAYING", ()):
                self._staying.take(connection, asked)
                return
            apart = getattr(_module(package, deed), "APART", False)
        except ValueError as error:
            self._answer(connection, asked, {}, str(error))
            return
        if apart:
            self._once.take(connection, asked)
        else:
            self._answer(connection, asked, *self._done(asked))

    def register(self, selector: selectors.BaseSelector) -> None:
        """Have a selector wait until a process has done its deed."""
        for apart in (self._once, self._staying):
            apart.register(selector)

    def pass_on(self, ready: Collection[int]) -> None:
        """Answer what was done; end what takes too long."""
        for apart in (self._once, self._staying):
            apart.pass_on(ready)

    def _done(self, asked: Asked) -> tuple[dict[str, Any], str]:
        """What it found, and what was wrong."""
        try:
            package, deed = _home(asked.deed)
            why_not = package.lacking(deed) if deed in getattr(package, "STAYING", ()) else ""
            if why_not:
                return {}, why_not
            module, how = _module(package, deed), _FUNCTIONS[type(asked)]
            function = getattr(module, f"{how}_{deed}", None) or getattr(module, how, None)
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


def _home(named: str) -> tuple[Any, str]:
    """The package that has a deed, and its name there."""
    feature, _, deed = named.rpartition(".")
    package: Any = sys.modules[__package__]
    if feature.isidentifier():
        with suppress(ImportError):
            package = import_module(f"...features.{feature}.on_node", __package__)
    if deed not in package.DEEDS:
        raise ValueError(f"an agent knows no deed {named!r}")
    return package, deed


def _module(package: Any, deed: str) -> Any:
    return import_module(f".{package.DEEDS[deed]}", package.__name__)
