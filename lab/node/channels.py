"""What a worker and its agent share: pipes for what it prints and reads, its trace, and the points at which it is held.

Who starts the worker opens them: the agent that forks it, or a process that a launcher started, see `launched`.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import sys
import termios
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from . import trace_file
from .messages.agent import CALLED, FED, ON_REQUEST, OWN, WorkerSettings, WorkerStart

SPEC_VARIABLE = "LAB_WORKER_SPEC"
"""Has what a worker in an interpreter of its own is started with."""
_MOST_WAITING_BYTES = 1 << 20
"""The lab sends no more than a quarter of this before it is told that it was taken."""
_VDISABLE = b"\0"
_OUT_OF_THE_WAY = 100
"""Descriptors from here on are far from those that scripts use."""
_STREAMS = ("in", "out", "err")
_INLET = ("input", "terminal", "grant", "answered")


class WorkerEnds(NamedTuple):
    """Descriptors for the worker; -1 where it has none."""

    stdin: int = -1
    terminal: int = -1
    """Its end of the pseudo-terminal."""
    granted: int = -1
    """Has a byte to read whenever the worker is given the terminal."""
    calls: int = -1
    """Where calls arrive."""
    answers: int = -1
    """Where it answers them."""


class Inlet:
    """Takes what a worker is to read, and gives it to the worker as that takes it."""

    def __init__(self, fd: int = -1, terminal: int = -1, grant: int = -1, answered: int = -1) -> None:
        self.ends = (fd, terminal, grant, answered)
        """The descriptors that it begins with; -1 where there is none."""
        self._fd = fd
        self._grant = grant
        self._waiting = b""
        self._last = False
        self.terminal = terminal
        """The agent's end of a pseudo-terminal, to be read by whoever has it; -1 where there is none."""
        self.answered = answered
        """Where answers to calls are to be read; -1 where there are none."""

    @property
    def waiting(self) -> int | None:
        """The descriptor that has to be writable for what waits; None where nothing does."""
        return self._fd if self._waiting and self._fd >= 0 else None

    def put(self, data: bytes, *, last: bool) -> tuple[int, bool]:
        """Take what is to be read; as `flush`."""
        self._waiting += data[: _MOST_WAITING_BYTES - len(self._waiting)]
        self._last |= last
        return self.flush()

    def flush(self) -> tuple[int, bool]:
        """Give the worker what it takes now; returns how many bytes that were, and whether it takes any more."""
        given = 0
        while self._waiting and self._fd >= 0:
            try:
                done = os.write(self._fd, self._waiting)
            except BlockingIOError:
                break
            except OSError:  # nobody reads
                self._close()
                break
            self._waiting, given = self._waiting[done:], given + done
        if self._last and not self._waiting:
            self._close()
        return given, self._fd < 0

    def grant(self) -> None:
        """Let the worker take the terminal."""
        with suppress(OSError):  # it has ended, or asks without taking
            os.write(self._grant, b"+")

    def resize(self, rows: int, columns: int) -> None:
        """Tell the worker how large its terminal is."""
        if self.terminal >= 0:
            size = (min(max(1, one), 0xFFFF) for one in (rows, columns))
            fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("4H", *size, 0, 0))

    def close(self) -> None:
        """Let go of everything but the terminal and the answers, which are closed by whoever reads them."""
        self._close()
        if self._grant >= 0:
            os.close(self._grant)
            self._grant = -1

    def _close(self) -> None:
        self._waiting = b""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def open_inlet(kind: str) -> tuple[Inlet, WorkerEnds]:
    """Both sides of what a worker of this kind reads.

    Raises:
        OSError: there is no room for the pseudo-terminal that it is to have from the start.
    """
    if kind == FED:
        read, write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(write, False)
        return Inlet(write), WorkerEnds(stdin=read)
    if kind == CALLED:
        calls, call = os.pipe2(os.O_CLOEXEC)
        answered, answers = os.pipe2(os.O_CLOEXEC)
        for fd in (call, answered):
            os.set_blocking(fd, False)
        return Inlet(call, answered=answered), WorkerEnds(calls=calls, answers=answers)
    if kind not in (ON_REQUEST, OWN):
        return Inlet(), WorkerEnds()
    try:
        here, there = os.openpty()
    except OSError:
        if kind == OWN:
            raise
        return Inlet(), WorkerEnds()  # its breakpoints say that there is none
    settings = termios.tcgetattr(there)
    settings[6][termios.VSUSP] = _VDISABLE  # nobody could let the rank go on
    termios.tcsetattr(there, termios.TCSANOW, settings)
    typed = os.dup(here)
    for fd in (here, typed):
        os.set_blocking(fd, False)
    if kind == OWN:
        return Inlet(typed, here), WorkerEnds(terminal=there)
    granted, grant = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(grant, False)
    return Inlet(typed, here, grant), WorkerEnds(terminal=there, granted=granted)


def with_triggers(start: WorkerStart, triggers: Iterable[dict[str, Any]]) -> WorkerStart:
    """Return a worker with those of the run's triggers that are its own, or any rank's."""
    own = tuple(one for one in triggers if start.rank >= 0 and one.get("rank") in (None, start.rank))
    return start._replace(triggers=own) if own else start


def open_channels(start: WorkerStart, settings: WorkerSettings) -> tuple[dict[str, int], dict[str, int]]:
    """Open what a worker and its agent share; returns the agent's descriptors, and the worker's, by name."""
    agent, worker = {}, {}
    for name in ("out", "err", "stack"):
        agent[name], worker[name] = os.pipe2(os.O_CLOEXEC)
    for name in ("gate", *(["step"] if settings.step else ()), *(["hold"] if start.triggers else ())):
        worker[name], agent[name] = os.pipe2(os.O_CLOEXEC)
    if settings.trace and start.rank >= 0:
        agent["trace"] = trace_file.make()
        worker["trace"] = os.dup(agent["trace"])
    if sidecar_of(start):
        agent["sidecar"], worker["sidecar"] = (one.detach() for one in socket.socketpair())
    inlet, ends = open_inlet(start.stdin)
    agent.update((name, fd) for name, fd in zip(_INLET, inlet.ends) if fd >= 0)
    worker.update((name, fd) for name, fd in zip(("in", *ends._fields[1:]), ends) if fd >= 0)
    return agent, worker


def inlet_of(agent: dict[str, int]) -> Inlet:
    """Return the inlet of a worker, by the agent's descriptors."""
    return Inlet(*(agent.get(name, -1) for name in _INLET))


def sidecar_of(start: WorkerStart) -> str:
    """Name the process that stands beside a worker, as FEATURE.MODULE; empty: none does."""
    return next((one["sidecar"] for one in start.triggers if one.get("sidecar")), "")


def sidecar_module(start: WorkerStart) -> Any:
    """Return the module of a feature that the process beside a worker runs.

    It has `start_serving(uid, gid, channel)` for the agent, which returns a pid and where the process is told what to
    do, and `install(channel)` for the worker.
    """
    feature, _, module = sidecar_of(start).partition(".")
    return import_module(f"..features.{feature}.on_node.{module}", __package__)


def move_out_of_the_way(start: WorkerStart, worker: dict[str, int]) -> tuple[tuple[int, ...], dict[str, int]]:
    """Return the streams of a worker, -1 where it has none, and its other descriptors, far from those of scripts."""
    streams = (worker["terminal"],) * 3 if start.stdin == OWN else tuple(worker.get(name, -1) for name in _STREAMS)
    others = {name: fd for name, fd in worker.items() if name not in _STREAMS}
    return streams, {name: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY) for name, fd in others.items()}


def make_spec(
    start: WorkerStart, settings: WorkerSettings, note_socket: str, descriptors: Mapping[str, int]
) -> dict[str, Any]:
    """Say what `rank.worker` needs to know; descriptors are NAME_fd."""
    own = os.path.join(settings.import_root if start.stdin == CALLED else "", start.script or start.argv[0])
    return {
        "rank": start.rank,
        "argv": start.argv,
        "script": own,
        "folder": settings.folder,
        "note_socket": note_socket,
        "stdin": start.stdin,
        "trace_values": settings.trace_values,
        "triggers": start.triggers,
        "packages": settings.packages,
        **{f"{name}_fd": fd for name, fd in descriptors.items()},
    }


def become_cold_worker(spec: dict[str, Any], import_root: str) -> NoReturn:
    """Run a worker in an interpreter of its own."""
    for name, fd in spec.items():
        if name.endswith("_fd"):
            os.set_inheritable(fd, True)
    os.environ[SPEC_VARIABLE] = json.dumps(spec)
    code = f"import sys; sys.path.append({import_root!r}); from labnode.node.rank import worker; worker.start_cold()"
    os.execv(sys.executable, [sys.executable, "-u", "-c", code])
