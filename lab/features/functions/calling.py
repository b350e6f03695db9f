"""Functions that a cluster's ranks are called with: what `Cluster.call` is made of."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import LabError, UsageError
from lab.features.functions import on_node
from lab.features.functions.call_line import CallLine
from lab.features.functions.lend import is_own
from lab.features.functions.session import Failed, Printed, Session, decode
from lab.record.result import Result
from lab.run.observe import Observer
from lab.run.options import RunOptions
from lab.spec.backends import check_backend
from lab.spec.scenario import Scenario

MAX_TIMEOUT_S = 720 * 3600


def plain_settings() -> dict[str, Any]:
    """Settings of a pytest of which nobody has set anything; others than these it does not insist on."""
    return {"assertion_text_diff_style": "ndiff"}


@dataclass(frozen=True, kw_only=True)
class How:
    """How a function is called."""

    timeout_s: float = 60.0
    """How long it may take before it is hung."""
    fresh: bool = False
    """Start new ranks for it."""
    backend: str = "gloo"
    """What the process group of all ranks is made with; empty: there is none."""
    filled: tuple[str, ...] = ()
    """Parameters that each rank fills in: `rank`, `world_size`, `group`."""
    wanted: bool = True
    """Whether what it returns comes back."""
    settings: Callable[[], Mapping[str, Any]] = plain_settings
    """Those of pytest, see `call_assertions`."""
    variables: bool = False
    """Whether failures tell local variables."""
    write: Callable[[BaseException], str] | None = None
    """Writes an exception with its traceback."""


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
        self._printed = Printed()
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
            return self._call(function, arguments, named, how)

    def _call(
        self, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any], how: How
    ) -> list[Any]:
        __tracebackhide__ = True
        from lab.features.functions.pack import Packed, pack_call

        session = self._usable(function, how)
        packed = Packed(session.folder)
        call = pack_call(
            packed,
            function,
            arguments,
            named,
            filled=how.filled,
            wanted=how.wanted,
            settings=how.settings,
            variables=how.variables,
        )
        session.shown.update(packed.shown)
        session.classes.update(packed.classes)
        try:
            answers = session.call(call, how.timeout_s)
            try:
                return decode(answers, session.classes)
            except LabError:  # whoever answered so may not be done
                session.give_up()
                raise
        except Failed as failure:
            from lab.features.functions.failures import raised

            result = session.result
            failed = raised(
                failure.failures,
                session.shown,
                classes=session.classes,
                record=result.path if result is not None else None,
                write=how.write,
            )
        finally:
            self._printed.show()
        raise failed

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
        other = session is not None and session.backend != how.backend
        if session is not None and (other or session.over or session.worn or how.fresh):
            self.end()
            session = None
        if session is None:
            session = self._session = self._new(function, how)
        return session

    def _new(self, function: Callable[..., Any], how: How) -> Session:
        path = Path(getattr(sys.modules.get(getattr(function, "__module__", "")), "__file__", None) or "<none>")
        own = path.suffix == ".py" and path.is_file() and is_own(str(path))
        script, folder = (path.resolve(), path.resolve().parent) if own else (_PROGRAM, Path.cwd())
        name = getattr(function, "__name__", "function")
        scenario = Scenario(
            name=name.strip("<>_") or "function",
            script=script,
            backend=how.backend or None,
            timeout_s=how.timeout_s,
            outputs=None,
        )

        printed = self._printed = Printed()

        def run(line: CallLine) -> Result:
            return self._run(scenario, RunOptions(calls=line), printed)

        return Session(run, os.fspath(folder), how.backend, printed.ignore)
