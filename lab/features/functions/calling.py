"""Calls functions on the ranks of a cluster: what `Cluster.call` is, and what it is made of."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.errors import UsageError
from lab.features.functions import on_node
from lab.features.functions.pack import How, is_own, pack_call
from lab.features.functions.session import CallLine, Session
from lab.record.result import Result
from lab.run.observe import Observer
from lab.run.options import RunOptions
from lab.spec.keys import check_backend
from lab.spec.scenario import Scenario

if TYPE_CHECKING:
    from lab.cluster import Cluster
else:
    Cluster = object
MAX_TIMEOUT_S = 720 * 3600
_PROGRAM = Path(on_node.__path__[0], "call_program.py")
"""What stands for the script of a function that has no file of its own."""


class Calling:
    """Calls functions on the ranks of one cluster; the first call starts them, and they stay until `end`.

    Threads may call at once: one call begins when the one before it is over.

    Args:
        run: runs a scenario on that cluster.
    """

    def __init__(self, run: Callable[[Scenario, RunOptions, Observer], Result]) -> None:
        self._run = run
        self._session: Session | None = None
        self._turn = threading.Lock()

    def call(
        self, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any], how: How
    ) -> list[Any]:
        """Call a function on every rank; returns what it returned, by rank. For what it raises, see `Cluster.call`."""
        __tracebackhide__ = True
        if not callable(function):
            raise UsageError(f"a {type(function).__name__} cannot be called", "give a function, and then its arguments")
        if not 0 < how.timeout_s <= MAX_TIMEOUT_S:
            raise UsageError(f"timeout_s is {how.timeout_s}; allowed: a number of seconds above 0")
        if how.backend:
            check_backend(how.backend)
        with self._turn:
            session = self._usable(function, how)
            call = pack_call(session.packed, function, arguments, named, how)
            try:
                return session.call(call, how)
            finally:
                session.show_printed()

    @property
    def result(self) -> Result | None:
        """Of the run of the ranks that were called last, once they have ended."""
        return self._session.result if self._session is not None else None

    def end(self) -> Result | None:
        """Have the ranks end; returns the result of their run, if there are any."""
        session, self._session = self._session, None
        return session.end() if session is not None else None

    def _usable(self, function: Callable[..., Any], how: How) -> Session:
        session = self._session
        if session is None or session.backend != how.backend or session.over or session.worn or how.fresh:
            self.end()
            session = self._session = self._new(function, how)
        return session

    def _new(self, function: Callable[..., Any], how: How) -> Session:
        path = Path(getattr(sys.modules.get(getattr(function, "__module__", "")), "__file__", None) or "<none>")
        own = path.suffix == ".py" and path.is_file() and is_own(str(path))
        script, folder = (path.resolve(), path.resolve().parent) if own else (_PROGRAM, Path.cwd())
        scenario = Scenario(
            name=getattr(function, "__name__", "").strip("<>_") or "function",
            script=script,
            backend=how.backend or None,
            timeout_s=how.timeout_s,
            outputs=None,
        )

        def run(line: CallLine, observer: Observer) -> Result:
            return self._run(scenario, RunOptions(calls=line), observer)

        return Session(run, os.fspath(folder), how.backend)


class Calls(Cluster):
    """Methods that `Cluster` has besides its own; see `Feature.cluster`."""

    def call(
        self, function: Callable[..., Any], /, *args: Any, timeout_s: float = 60.0, fresh: bool = False, **kwargs: Any
    ) -> list[Any]:
        """Call a function on every rank, in a process group of all of them.

        The first call starts the ranks, as one run with its record; they stay for the next calls, and end with `down`,
        before the next `run`, and when a call fails or hangs: then the next one gets new ranks. Calls of several
        threads are made one after the other.

        Args:
            function: any function, nested ones and methods too; it travels with its code.
            args: its arguments, pickled by cloudpickle.
            timeout_s: how long it may take before it is hung.
            fresh: start new ranks for it.
            kwargs: its arguments by name.

        Returns:
            What it returned, by rank: numbers, text, containers, tensors, arrays, dataclasses, named tuples, enums.

        Raises:
            RanksFailed: it raised something; what is raised is of that class too, its traceback leads through the
                function, and `ranks` and `record` say where.
            RanksHung: it did not end in time; the message says who was waited for, and where.
            UsageError: it or its arguments cannot be sent.
            LabError: what it returned is not data; or the ranks could not be started, as for `run`.
        """
        __tracebackhide__ = True

        return self.call_as(function, args, kwargs, How(timeout_s=timeout_s, fresh=fresh))

    def call_as(
        self, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any], how: How
    ) -> list[Any]:
        """As `call`, in a way that has more to it."""
        __tracebackhide__ = True
        return calling_of(self, partial(run_ranks, self)).call(function, arguments, named, how)

    @property
    def called(self) -> Result | None:
        """What came of the ranks that were called last, once they have ended."""
        calling: Calling | None = vars(self).get("_calling")
        return calling.result if calling is not None else None

    def end_calls(self) -> Result | None:
        """Have the ranks end that were called; returns the result of their run, if there were any."""
        calling: Calling | None = vars(self).get("_calling")
        return calling.end() if calling is not None else None


def calling_of(cluster: Cluster, run: Callable[[Scenario, RunOptions, Observer], Result]) -> Calling:
    """What calls functions on a cluster; made when it is first asked for.

    Args:
        cluster: where.
        run: makes the run that ranks are while they take calls.
    """
    found: Calling = vars(cluster).setdefault("_calling", Calling(run))  # threads may do so at once
    if found.end not in cluster.before_use:
        cluster.before_use.append(found.end)
    return found


def run_ranks(cluster: Cluster, scenario: Scenario, options: RunOptions, observer: Observer) -> Result:
    """Make the run that ranks are while they take calls."""
    return cluster.run_for("calls of functions", scenario, options, observer)
