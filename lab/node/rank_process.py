"""Processes that have a rank, as their agent has them: their output, their input, and how they ended."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any

from . import channels, processes
from .messages.agent import ANSWERS, TERMINAL, Exited, Leaving, Raised, Trace, WorkerStart
from .messages.wire import Sender
from .statement import STACK_SIGNAL
from .trace_file import LIMIT_BYTES, TraceFile

_MOST_STACK_BYTES = 256 * 1024
_MOST_HALTS = 100
"""Limit for the reports that a worker was stopped or continued."""
_MOST_FORKS = 4
"""Limit for the forks of one worker that are asked for their stacks."""
_STACK_DEADLINE_S = 0.2
_STACK_PAUSE_S = 0.01
"""A stack is complete after such a pause, because faulthandler writes without one."""
_STREAMS = {"answered": ANSWERS, "out": 1, "err": 2, "terminal": TERMINAL}
"""In the order in which they are read: a worker answers after its prints."""
_ENDS = frozenset(("gate", "grant", "step", "hold", "sidecar", "status"))
_PIDFD_GET_INFO = 0xC040FF0B
"""From Linux 6.15 on its result has the wait status of a reaped process."""
_INFO_BYTES, _STATUS_AT, _HAS_STATUS = 64, 60, 8


class RankProcess:
    """A process that has a rank, or a number instead of one.

    Args:
        rank: that number.
        pid: of the process.
        attempt: see `FromRank`.
        trace: a file in memory for its recorder; None: it is not recorded.
        stack: a file in memory for its Python stack.
    """

    def __init__(self, rank: int, pid: int, attempt: str, trace: int | None, stack: int) -> None:
        self.rank, self.pid, self.attempt = rank, pid, attempt
        self.trace = None if trace is None else TraceFile(made=trace)
        self.stack_file = TraceFile(made=stack)
        self.files = [self.stack_file, *filter(None, [self.trace])]
        """The files in memory that it writes."""
        self.raised: Raised | None = None
        self.is_running = True
        """Whether its end is not known yet."""
        self.stopped = False
        """Whether the lab asked it to end."""
        self.owes_stack = False
        """Whether its agent has not yet reported the stack that it requested."""
        self._stack_begin = 0
        self._before = 0.0, 0.0
        """When its last stack was requested, and its load by then, see `processes.read_load_s`."""

    @property
    def stack(self) -> str:
        """Stacks written since the last request; after a crash, the stack of the crash."""
        return os.pread(self.stack_file.fd, _MOST_STACK_BYTES, self._stack_begin).decode("utf-8", "replace")

    def send_trace(self, send: Sender, count: Callable[[int], int] = lambda size: size) -> bool:
        """Send complete lines of its recorder until the connection is congested; return whether lines are left.

        `count` returns how many of so many bytes are within the limit. If not all are, the trace ends.
        """
        trace = self.trace
        for chunk in trace.chunks(ended=not self.is_running) if trace else ():
            if trace and trace.exceeded is None and count(len(chunk)) < len(chunk):
                trace.cut("trace", LIMIT_BYTES)
                continue
            send(Trace("", self.rank, chunk, self.attempt))
            if send.congested:
                return True
        return False

    def begin_stack(self, *, requests: bool = True) -> None:
        """Ignore earlier stacks, and have it write another one if this `requests` it."""
        self._stack_begin = os.fstat(self.stack_file.fd).st_size
        self._before = time.monotonic(), processes.read_load_s(self.pid)
        if requests:
            self.request_stack()

    def measure_load(self) -> float:
        """Return its load since the last request for its stack: 1.0 if it kept one core busy."""
        began, before = self._before
        return round(max(0.0, processes.read_load_s(self.pid) - before) / (time.monotonic() - began), 3)

    def request_stack(self, pid: int | None = None) -> bool:
        """Have it, or a process that it forked, write its stack; return whether it can."""
        able = processes.filter_catching(STACK_SIGNAL, [pid or self.pid])
        with suppress(OSError):
            for one in able:
                os.kill(one, STACK_SIGNAL)
        return bool(able)

    def describe_exit(self, ended: float, code: int | None, killed_by: int, **other: Any) -> Exited:
        """Return how it ended at a Unix time: with a code or, if that is not 0, by a signal."""
        raised = self.raised
        return Exited(
            rank=self.rank,
            time=ended,
            code=None if killed_by else code,
            signal=processes.signal_name(killed_by),
            error=raised.error if raised else "",
            traceback=raised.traceback if raised else "",
            raised=raised.time if raised else None,
            stack=self.stack if killed_by or self.owes_stack else "",
            attempt=self.attempt,
            **{"stopped": self.stopped, **other},
        )

    def close(self) -> None:
        """Close the agent's ends of everything that it shares with the process."""
        for file in self.files:
            file.close()


class Worker(RankProcess):
    """A worker or starter.

    Args:
        start: how it was started.
        pid: of its process.
        notes: socket for the datagrams of `note`.
        ends: the agent's descriptors of its channels by name, see `channels`.
        sidecar_pid: the process next to it; 0: none.
    """

    def __init__(
        self, start: WorkerStart, pid: int, notes: socket.socket, ends: dict[str, int], sidecar_pid: int = 0
    ) -> None:
        super().__init__(start.rank, pid, start.attempt, ends.get("trace"), ends["stack"])
        self.local_rank = start.local_rank
        self.notes, self.sidecar_pid = notes, sidecar_pid
        self.input_channel = channels.InputChannel(ends)
        """Its input."""
        self.streams = {ends[name]: number for name, number in _STREAMS.items() if name in ends}
        """Read end -> 1 (standard output), 2 (standard error), 3 (its terminal), or 4 (its answers)."""
        self.ends = {name: ends[name] for name in _ENDS & ends.keys()}
        """Other descriptors by name: `gate` opens its gate. `grant`, `step`, and `hold` let it continue where it is
        held. `sidecar` has commands for the process next to it. `status` has wait statuses from its parent, see
        `launched`."""
        self.status = 0
        """Wait status after its end."""
        self.out_of_memory = False
        """Whether the agent killed it because memory ran out."""
        self.memory_bytes: int | None = None
        """Memory that it used then."""
        self.killed_by_starter = False
        """Whether its starter killed it, as `mpiexec` kills all workers once one of them has failed."""
        self.started = 0.0
        """Unix time at which the gate opened."""
        self._halts = 0

    def open_gate(self) -> bool:
        """Let the worker run its script; return False if the gate was open already."""
        if "gate" not in self.ends:
            return False
        self.started = time.time()
        self.write("gate", b"+")
        os.close(self.ends.pop("gate"))
        return True

    def write(self, end: str, data: bytes) -> None:
        """Write to a channel of the worker if it is still open."""
        if end in self.ends:
            with suppress(OSError):  # it has ended, or has closed the channel
                os.write(self.ends[end], data)

    def poll_status(self) -> Iterator[str]:
        """Update its status; yield each signal that stopped it, and "" each time it was continued."""
        for _ in range(_MOST_HALTS):  # it may be stopped and continued faster than this polls
            if (status := self._next_status()) is None:
                return
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                self.status, self.is_running = status, False
                return
            self._halts += 1
            if self._halts <= _MOST_HALTS:
                yield (processes.signal_name(os.WSTOPSIG(status)) or "") if os.WIFSTOPPED(status) else ""

    def _next_status(self) -> int | None:
        """Return the next wait status since the last call; None: no change."""
        if "status" not in self.ends:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            return status if pid else None
        while True:
            try:
                report = os.read(self.ends["status"], 4)
            except BlockingIOError:
                return None
            if not report:  # its launcher killed its parent, and so the worker died
                self.killed_by_starter = True
                return signal.SIGKILL
            if (status := int.from_bytes(report, sys.byteorder, signed=True)) >= 0:
                return status
            self.stopped = True  # by its launcher

    def exited(self, ended: float, *, starved: bool) -> Exited:
        """Return how it ended; `starved`: the kernel killed it because memory ran out."""
        status = self.status
        # Where its script failed, something else in the process may have ended it with 0.
        code = os.WEXITSTATUS(status) or int(self.raised is not None)
        return self.describe_exit(
            ended,
            code,
            os.WTERMSIG(status),
            out_of_memory=starved or self.out_of_memory,
            memory_bytes=self.memory_bytes,
            stopped=self.stopped or (self.killed_by_starter and self.raised is None),
        )

    def await_stack(self, pid: int | None = None) -> None:
        """Have the worker, or a process that it forked, write its stack, and wait for it."""
        first, known, end = os.fstat(self.stack_file.fd).st_size, -1, time.monotonic() + _STACK_DEADLINE_S
        if not self.request_stack(pid):
            return
        while time.monotonic() < end:
            size = os.fstat(self.stack_file.fd).st_size
            if first < size == known and self.stack.endswith("\n"):
                return
            known = size
            time.sleep(_STACK_PAUSE_S)

    def await_stacks_of_forks(self, excluded: Collection[int]) -> None:
        """If the worker waits for forks, such as those of a DataLoader, add their stacks to its own."""
        if "/multiprocessing/" not in self.stack:
            return
        forks = processes.filter_catching(STACK_SIGNAL, processes.list_descendants(self.pid))
        for pid in [pid for pid in forks if pid not in excluded][:_MOST_FORKS]:
            os.write(self.stack_file.fd, b"Process %d, started by this worker:\n" % pid)
            self.await_stack(pid)

    def close(self) -> None:
        """Close the agent's ends of everything that it shares with the worker, and end its sidecar."""
        super().close()
        for fd in (*self.streams, *self.ends.values()):
            os.close(fd)
        self.streams.clear()
        self.ends.clear()
        self.notes.close()
        self.input_channel.close()
        if self.sidecar_pid:
            with suppress(OSError):
                os.kill(self.sidecar_pid, signal.SIGKILL)
                os.waitpid(self.sidecar_pid, 0)
        self.sidecar_pid = 0


class JoinedProcess(RankProcess):
    """A process that a worker started and that joined a process group, or a thread of it that is a rank."""

    def __init__(self, number: int, pid: int, attempt: str, trace: int, stack: int, pidfd: int, thread: int) -> None:
        super().__init__(number, pid, attempt, trace, stack)
        self.pidfd, self.thread = pidfd, thread
        self.ended = 0.0
        """Unix time of its end."""
        self.leaving: Leaving | None = None

    def end(self) -> None:
        """Note that it has ended, now unless the time is known."""
        self.ended, self.is_running = self.ended or time.time(), False

    def find_status(self) -> int | None:
        """Return its wait status; None if unknown."""
        if self.leaving and self.leaving.stays:
            return None
        words = processes.read_stat(self.pid)  # empty: it was reaped, or is of another user
        if words and words[0] in b"ZX" and int(words[-1]) >= 0:
            return int(words[-1])
        with suppress(OSError):  # it is no child of the agent
            # Not reaped: if it is a worker, its parent waits for it.
            if (end := os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                return end.si_status << 8 if end.si_code == os.CLD_EXITED else end.si_status
        with suppress(OSError):  # an older kernel, or it was not reaped yet
            info = bytearray(struct.pack("Q", _HAS_STATUS).ljust(_INFO_BYTES, b"\0"))
            fcntl.ioctl(self.pidfd, _PIDFD_GET_INFO, info)
            if struct.unpack_from("Q", info)[0] & _HAS_STATUS:
                return int(struct.unpack_from("i", info, _STATUS_AT)[0])
        return None

    def exited(self, status: int | None) -> Exited:
        """Return how it ended; an orderly end without a known wait status has the code that the process announced."""
        ended = self.ended
        if status is not None:
            return self.describe_exit(ended, os.WEXITSTATUS(status), os.WTERMSIG(status))
        code = self.leaving.code if self.leaving else None
        return self.describe_exit(ended, int(self.raised is not None) if self.leaving and code is None else code, 0)

    def close(self) -> None:
        """Close the agent's ends of everything that it shares with the process."""
        super().close()
        with suppress(OSError):
            os.close(self.pidfd)
