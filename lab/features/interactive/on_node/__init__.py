"""`breakpoint()` and pdb in a worker: request the terminal of the lab's user, or report that there is none."""

from __future__ import annotations

import fcntl
import os
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType
from typing import Any

from ....node.messages.agent import ANOTHERS, ON_REQUEST, OWN, Breakpoint, Continued
from ....node.rank import note
from ....node.recorder.patching import when_imported

HOOKS = {"worker": "prepare_debugger"}


_CHOICE = "PYTHONBREAKPOINT"
_PATIENCE = timedelta(days=1)
_OWN_MODULES = "labnode.*"


class _Debugging:
    """The debugger of this process, and its terminal."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.rank = spec["rank"]
        self.kind = spec["stdin"]
        self._folder = os.path.join(spec["folder"], "")
        self._socket = spec["note_socket"]
        self._terminal, self._granted = spec.get("terminal_fd", -1), spec.get("granted_fd", -1)
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._deep = 0
        self._passed: set[str] = set()
        self._instance: Any = None

    def at(self, frame: FrameType | None) -> str:
        """Return a position in the script."""
        return f"{frame.f_code.co_filename.replace(self._folder, '', 1)}:{frame.f_lineno}" if frame else "?"

    def stop(self, frame: FrameType, what: str, header: str | None, commands: Any) -> None:
        """Start the debugger at a frame, if it can have a terminal."""
        if self.kind == ANOTHERS:
            if (at := self.at(frame)) not in self._passed:
                self._passed.add(at)
                print(f"rank {self.rank} skips {what} at {at}: another rank has the terminal", file=sys.stderr)
            return
        self.refuse(frame, what)
        import pdb  # noqa: T100 - somebody asks for it

        self._instance = debugger = self._instance or pdb.Pdb()
        if header is not None:
            debugger.message(header)
        if commands is not None:
            debugger.rcLines.extend(commands)
        debugger.set_trace(frame)

    def refuse(self, frame: FrameType | None, what: str) -> None:
        """Raise an error unless a debugger may ask for the terminal."""
        if self.kind == ON_REQUEST and self._terminal >= 0 and os.getpid() == self._pid:
            return
        who = f"rank {self.rank}" if os.getpid() == self._pid else f"a process that rank {self.rank} started"
        raise RuntimeError(
            f"{who} reached {what} at {self.at(frame)}, but its debugger has no terminal. Run it alone with "
            f"`lab run` in a terminal, or skip breakpoint() with --env {_CHOICE}=0"
        )

    @contextmanager
    def terminal(self, frame: FrameType | None) -> Iterator[None]:
        """Replace the standard streams by the terminal, as soon as this rank has it."""
        with self._lock:
            self._deep += 1
            try:
                if self._deep > 1:
                    yield
                    return
                note.send_statement(self._socket, Breakpoint(self.rank, time.time(), at=self.at(frame)[-300:]))
                if not os.read(self._granted, 1):
                    raise RuntimeError(
                        f"rank {self.rank} waited at {self.at(frame)} for a terminal that no longer exists"
                    )
                with self._terminal_as_streams():
                    yield
            finally:
                self._deep -= 1
                if not self._deep:
                    note.send_statement(self._socket, Continued(self.rank, time.time()))

    @contextmanager
    def _terminal_as_streams(self) -> Iterator[None]:
        saved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100) for fd in (0, 1, 2)]
        streams, kind = (sys.stdin, sys.__stdin__), os.environ.get("TERM")
        with suppress(OSError):  # the process has it already
            fcntl.ioctl(self._terminal, termios.TIOCSCTTY, 0)  # Ctrl-C now reaches this process
        os.environ["TERM"] = "dumb"  # no control sequences, because they would appear as text
        for fd in (0, 1, 2):
            os.dup2(self._terminal, fd)
        sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="replace", closefd=False)  # type: ignore[misc]
        try:
            yield
        finally:
            sys.stdin, sys.__stdin__ = streams  # type: ignore[misc]
            for fd, old in enumerate(saved):
                os.dup2(old, fd)
                os.close(old)
            os.environ.pop("TERM", None)
            if kind is not None:
                os.environ["TERM"] = kind


def prepare_debugger(spec: dict[str, Any]) -> None:
    """Set what breakpoints do in this process; in a process with its own terminal, they work as usual."""
    if spec["stdin"] in (OWN, ANOTHERS):
        # Ranks wait for a rank that a person debugs, unless the script sets a timeout.
        when_imported("torch.distributed.distributed_c10d", lambda one: setattr(one, "default_pg_timeout", _PATIENCE))
    if spec["stdin"] == OWN:
        return
    debugging = _Debugging(spec)

    def breakpoint_hook(*arguments: Any, **named: Any) -> Any:
        if os.environ.get(_CHOICE) not in (None, "", "pdb.set_trace"):
            return sys.__breakpointhook__(*arguments, **named)  # noqa: T100
        return debugging.stop(sys._getframe(1), "breakpoint()", named.get("header"), named.get("commands"))

    sys.breakpointhook = breakpoint_hook
    when_imported("pdb", lambda module: _patch(module, debugging))


def _patch(pdb: Any, debugging: _Debugging) -> None:
    """Have every debugger that reads from standard input request the terminal."""

    def set_trace(*, header: str | None = None, commands: Any = None) -> None:
        debugging.stop(sys._getframe(1), "pdb.set_trace()", header, commands)

    def interaction(self: Any, frame: FrameType | None, *rest: Any) -> None:
        if not self.use_rawinput:  # it uses its own streams
            plain(self, frame, *rest)
            return
        debugging.refuse(frame, "its debugger")
        self.skip = {*(self.skip or ()), _OWN_MODULES}
        with debugging.terminal(frame):
            plain(self, frame, *rest)

    plain = pdb.Pdb.interaction
    pdb.Pdb.interaction = interaction
    pdb.set_trace = set_trace
