"""A worker, or starter, as its agent holds it: its process, the ends of its pipes, and how it ended."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from . import channels, processes, trace_file
from .messages.agent import Exited, Raised
from .rank.joining import STACK_SIGNAL

_STACK_LIMIT_BYTES = 256 * 1024
_STACK_READS = 16
_MOST_HALTS = 100
"""So often it is told that a worker was stopped or let go on."""
_MOST_FORKS = 4
"""Processes of one worker whose stacks are asked for."""
_STACK_DEADLINE_S = 0.2
_STACK_PAUSE_S = 0.01
"""faulthandler writes a stack without a pause."""


@dataclass
class Worker:
    """A rank's process and the agent's ends of its pipes."""

    rank: int
    local_rank: int
    pid: int
    notes: socket.socket
    """Where the datagrams of `note` arrive."""
    streams: dict[int, int]
    """Read end -> 1 (standard output), 2 (standard error), 3 (its terminal) or 4 (its answers)."""
    inlet: channels.Inlet
    """Where what it reads goes in."""
    ends: dict[str, int]
    """The other descriptors of its channels by name: `stack`, `gate`, which lets it run its script, and, where it has
    them, `step` and `hold`, which let it go on from where it is held, `sidecar`, which tells the process beside it what
    to do, and `status`, where its parent says what has become of it; see `launched`."""
    trace: trace_file.TraceFile | None = None
    """What its recorder writes; None where it is not recorded."""
    status: int | None = None
    """Wait status; None while it runs."""
    raised: Raised | None = None
    out_of_memory: bool = False
    """Whether the agent killed it because memory ran out."""
    memory_bytes: int | None = None
    """What it held then."""
    stack: bytes = b""
    """What faulthandler wrote."""
    stopped: bool = False
    """Whether the lab asked it to end."""
    given_up: bool = False
    """Whether its starter killed it, as `mpiexec` does with all workers once one of them has failed."""
    output_bytes: int = 0
    """What it has printed, with what was dropped of it."""
    note_bytes: int = 0
    """What its notes took, with those that were dropped."""
    halts: int = 0
    """How often it was stopped or let go on."""
    started: float = 0.0
    """Unix time at which the gate opened."""
    attempt: str = ""
    """See `Started`."""
    sidecar_pid: int = 0
    """The process beside it; 0: there is none."""

    def open_gate(self) -> bool:
        """Let the worker run its script; returns whether that was still to be done."""
        if "gate" not in self.ends:
            return False
        self.started = time.time()
        self.write("gate", b"+")
        os.close(self.ends.pop("gate"))
        return True

    def write(self, end: str, data: bytes) -> None:
        """Tell the worker something, if it listens there."""
        if end in self.ends:
            with suppress(OSError):  # it has ended, or does not listen any more
                os.write(self.ends[end], data)

    def read_stack(self) -> None:
        """Take over what faulthandler has written so far."""
        with suppress(OSError):  # nothing more yet
            for _ in range(_STACK_READS):  # somebody may write as fast as it is read
                chunk = os.read(self.ends["stack"], 65536)
                if not chunk:
                    return
                if len(self.stack) < _STACK_LIMIT_BYTES:
                    self.stack += chunk

    def look(self) -> tuple[list[str], int | None]:
        """What has become of it: each signal that stopped it, "" where it was let go on; its status if it ended."""
        halts: list[str] = []
        for _ in range(_MOST_HALTS):  # it may be stopped and let go as fast as it is looked at
            status = self._next_status()
            if status is None:
                return halts, None
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                return halts, status
            name = processes.signal_name(os.WSTOPSIG(status)) if os.WIFSTOPPED(status) else None
            self.halts += 1
            if self.halts <= _MOST_HALTS:
                halts.append(name or "")
        return halts, None

    def _next_status(self) -> int | None:
        """What has become of it since the last time; None: nothing."""
        if "status" not in self.ends:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            return status if pid else None
        while True:
            try:
                report = os.read(self.ends["status"], 4)
            except BlockingIOError:
                return None
            if not report:  # its launcher killed its parent, and so it
                self.given_up = True
                return signal.SIGKILL
            status = int.from_bytes(report, sys.byteorder, signed=True)
            if status >= 0:
                return status
            self.stopped = True  # by its launcher

    def exited(self, ended: float, node: str, run: str, *, starved: bool) -> Exited:
        """What there is to say of its end; `starved`: the kernel killed it because memory ran out."""
        status, raised = self.status or 0, self.raised
        killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        # Where its script failed, something else in the process may have ended it with 0.
        code = os.WEXITSTATUS(status) or int(raised is not None)
        return Exited(
            rank=self.rank,
            time=ended,
            node=node,
            run=run,
            code=None if killed_by else code,
            signal=processes.signal_name(killed_by),
            out_of_memory=starved or self.out_of_memory,
            stopped=self.stopped or (self.given_up and raised is None),
            error=raised.error if raised else "",
            traceback=raised.traceback if raised else "",
            raised=raised.time if raised else None,
            stack=self.stack.decode("utf-8", "replace") if killed_by else "",
            memory_bytes=self.memory_bytes,
            attempt=self.attempt,
        )

    def begin_stack(self) -> None:
        """Have the worker write its stack, and forget what it wrote before."""
        self.read_stack()
        self.stack = b""
        if self.status is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, STACK_SIGNAL)

    def ask_for_stack(self, pid: int | None = None) -> None:
        """Have the worker, or a process that it forked, write its stack now, and take over what it writes."""
        if not processes.catching(STACK_SIGNAL, [pid or self.pid]):
            return
        with suppress(OSError):
            os.kill(pid or self.pid, STACK_SIGNAL)
        end, first, known = time.monotonic() + _STACK_DEADLINE_S, len(self.stack), -1
        while time.monotonic() < end:
            self.read_stack()
            if first < len(self.stack) == known and self.stack.endswith(b"\n"):
                return
            known = len(self.stack)
            time.sleep(_STACK_PAUSE_S)

    def read_stacks_of_forks(self, but: Collection[int] = ()) -> None:
        """Where the worker waits for processes that it forked, such as a DataLoader's, add their stacks to its own.

        Not those of `but`.
        """
        if b"/multiprocessing/" not in self.stack:
            return
        forks = processes.catching(STACK_SIGNAL, processes.descendants(self.pid))
        for pid in [pid for pid in forks if pid not in but][:_MOST_FORKS]:
            self.stack += b"Process %d, started by this worker:\n" % pid
            self.ask_for_stack(pid)

    def signal_all(self, number: int) -> None:
        """Send a signal to the worker, if it still runs, and to the processes of its session."""
        if self.status is None:
            processes.signal_session(self.pid, number)

    def close(self) -> None:
        """Close the agent's ends of all pipes."""
        for fd in (*self.streams, *self.ends.values()):
            os.close(fd)
        if self.sidecar_pid:
            with suppress(OSError):
                os.kill(self.sidecar_pid, signal.SIGKILL)
                os.waitpid(self.sidecar_pid, 0)
        self.streams, self.ends, self.sidecar_pid = {}, {}, 0
        self.notes.close()
        self.inlet.close()
        if self.trace is not None:
            self.trace.close()
