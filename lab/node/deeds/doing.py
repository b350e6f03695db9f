"""The deeds of one agent: done by itself, or by a process beside it."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Collection
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..config import Config
from ..connection import Connection
from ..messages.fault import Do, Done, LookAt, Undo
from . import DEEDS, Context, library
from .apart import Apart, Asked

if TYPE_CHECKING:
    from ..noderun import NodeRun

_NEEDING = ("links", "link_probe")
"""Those that need the library."""
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
        self._links = Apart(self._done, self._answer, stays=True)

    @property
    def pids(self) -> set[int]:
        """The processes that do something, or wait to."""
        return self._hogs | {apart.pid for apart in (self._once, self._links) if apart.pid}

    @property
    def busy(self) -> bool:
        """Whether something is being done."""
        return bool(self._hogs) or self._once.busy or self._links.busy

    def take(self, connection: Connection, asked: Asked) -> None:
        """Do what is asked for, or have it done, and answer."""
        if asked.deed in ("library", *_NEEDING):
            self._links.take(connection, asked)
            return
        try:
            apart = getattr(_module(asked.deed), "APART", False)
        except ValueError as error:
            self._answer(connection, asked, {}, str(error))
            return
        if apart:
            self._once.take(connection, asked)
        else:
            self._answer(connection, asked, *self._done(asked))

    def register(self, selector: selectors.BaseSelector) -> None:
        """Have a selector wait until a process has done its deed."""
        for apart in (self._once, self._links):
            apart.register(selector)

    def pass_on(self, ready: Collection[int]) -> None:
        """Answer what was done; end what takes too long."""
        for apart in (self._once, self._links):
            apart.pass_on(ready)

    def _done(self, asked: Asked) -> tuple[dict[str, Any], str]:
        """What it found, and what was wrong."""
        if asked.deed in _NEEDING and not library.there():
            return {}, library.LACKING
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


def _module(deed: str) -> Any:
    if deed not in DEEDS:
        raise ValueError(f"an agent knows no deed {deed!r}")
    return import_module(f".{DEEDS[deed]}", __package__)
