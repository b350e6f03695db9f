"""Processes that have a rank, as their agent holds them: what is read of them, what they are given, how they ended."""

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
from .rank.joining import STACK_SIGNAL
from .trace_file import LIMIT_BYTES, TraceFile

_MOST_STACK_BYTES = 256 * 1024
_MOST_HALTS = 100
"""So often it is reported that a worker was stopped or continued."""
_MOST_FORKS = 4
"""Processes of one worker whose stacks are asked for."""
_STACK_DEADLINE_S = 0.2
_STACK_PAUSE_S = 0.01
"""faulthandler writes a stack without a pause."""
_STREAMS = {"answered": ANSWERS, "out": 1, "err": 2, "terminal": TERMINAL}
"""In the order in which they are read: a worker answers after it has printed."""
_ENDS = frozenset(("gate", "grant", "step", "hold", "sidecar", "status"))
_PIDFD_GET_INFO = 0xC040FF0B
"""Its answer, from Linux 6.15 on, has the wait status of a process that was waited for."""
_INFO_BYTES, _STATUS_AT, _HAS_STATUS = 64, 60, 8


class RankProcess:
    """A process that has a rank, or a number in the place of one.

    Args:
        rank: that number.
        pid: of the process.
        attempt: see `FromRank`.
        trace: a file in memory that its recorder writes; None where it is not recorded.
        stack: another one, for its Python stack.
    """

    def __init__(self, rank: int, pid: int, attempt: str, trace: int | None, stack: int) -> None:
        self.rank = rank
        self.pid = pid
        self.attempt = attempt
        self.trace = None if trace is None else TraceFile(made=trace)
        self.stack_file = TraceFile(made=stack)
        self.files = [self.stack_file, *filter(None, [self.trace])]
        """What it writes into memory that the agent holds."""
        self.raised: Raised | None = None
        self.is_running = True
        """Whether nobody knows yet that it has ended."""
        self.stopped = False
        """Whether the lab asked it to end."""
        self._stack_begin = 0

    @property
    def stack(self) -> str:
        """The stacks that were written since they were last asked for; of a process that crashed, that of its end."""
        return os.pread(self.stack_file.fd, _MOST_STACK_BYTES, self._stack_begin).decode("utf-8", "replace")

    def send_trace(self, send: Sender, count: Callable[[int], int] = lambda size: size) -> bool:
        """Pass on whole lines of its recorder, as long as what is sent gets through; returns whether some are left.

        `count` returns how many of so many bytes are kept: where not all are, nothing more is.
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

    def begin_stack(self) -> None:
        """Have it write its stack, and forget what it wrote before."""
        self._stack_begin = os.fstat(self.stack_file.fd).st_size
        self.request_stack()

    def request_stack(self, pid: int | None = None) -> bool:
        """Have it, or a process that it forked, write its stack; returns whether that can."""
        able = processes.filter_catching(STACK_SIGNAL, [pid or self.pid])
        with suppress(OSError):
            for one in able:
                os.kill(one, STACK_SIGNAL)
        return bool(able)

    def describe_exit(self, ended: float, code: int | None, killed_by: int, **other: Any) -> Exited:
        """How it ended: at a Unix time, with a code or, unless that is 0, by a signal."""
        raised = self.raised
        return Exited(
            rank=self.rank,
            time=ended,
            code=None if killed_by else code,
            signal=processes.signal_name(killed_by),
            error=raised.error if raised else "",
            traceback=raised.traceback if raised else "",
            raised=raised.time if raised else None,
            stack=self.stack if killed_by else "",
            attempt=self.attempt,
            **{"stopped": self.stopped, **other},
        )

    def close(self) -> None:
        """Close the agent's ends of all that it shares with the process."""
        for file in self.files:
            file.close()


class Worker(RankProcess):
    """A worker, or starter.

    Args:
        start: what it was started with.
        pid: of its process.
        notes: where the datagrams of `note` arrive.
        ends: the agent's descriptors of its channels by name, see `channels`.
        sidecar_pid: the process beside it; 0: there is none.
    """

    def __init__(
        self, start: WorkerStart, pid: int, notes: socket.socket, ends: dict[str, int], sidecar_pid: int = 0
    ) -> None:
        super().__init__(start.rank, pid, start.attempt, ends.get("trace"), ends["stack"])
        self.local_rank = start.local_rank
        self.notes = notes
        self.sidecar_pid = sidecar_pid
        self.input_channel = channels.InputChannel(ends)
        """Where what it reads goes in."""
        self.streams = {ends[name]: number for name, number in _STREAMS.items() if name in ends}
        """Read end -> 1 (standard output), 2 (standard error), 3 (its terminal) or 4 (its answers)."""
        self.ends = {name: ends[name] for name in _ENDS & ends.keys()}
        """Others by name: `gate`, which lets it run its script, and, where it has them, `grant`, `step` and `hold`,
        which let it go on from where it is held, `sidecar`, which tells the process beside it what to do, and `status`,
        where its parent says what has become of it; see `launched`."""
        self.status = 0
        """Wait status, once it has ended."""
        self.out_of_memory = False
        """Whether the agent killed it because memory ran out."""
        self.memory_bytes: int | None = None
        """What it held then."""
        self.killed_by_starter = False
        """Whether its starter killed it, as `mpiexec` does with all workers once one of them has failed."""
        self.started = 0.0
        """Unix time at which the gate opened."""
        self._halts = 0

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

    def poll_status(self) -> Iterator[str]:
        """Update its status; yields each signal that stopped it, "" where it was continued."""
        for _ in range(_MOST_HALTS):  # it may be stopped and continued as fast as it is polled
            status = self._next_status()
            if status is None:
                return
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                self.status, self.is_running = status, False
                return
            self._halts += 1
            if self._halts <= _MOST_HALTS:
                yield (processes.signal_name(os.WSTOPSIG(status)) or "") if os.WIFSTOPPED(status) else ""

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
                self.killed_by_starter = True
                return signal.SIGKILL
            status = int.from_bytes(report, sys.byteorder, signed=True)
            if status >= 0:
                return status
            self.stopped = True  # by its launcher

    def exited(self, ended: float, *, starved: bool) -> Exited:
        """How it ended; `starved`: the kernel killed it because memory ran out."""
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
        """Have the worker, or a process that it forked, write its stack, and wait until it has."""
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
        """Where the worker waits for processes that it forked, such as a DataLoader's, add their stacks to its own."""
        if "/multiprocessing/" not in self.stack:
            return
        forks = processes.filter_catching(STACK_SIGNAL, processes.list_descendants(self.pid))
        for pid in [pid for pid in forks if pid not in excluded][:_MOST_FORKS]:
            os.write(self.stack_file.fd, b"Process %d, started by this worker:\n" % pid)
            self.await_stack(pid)

    def close(self) -> None:
        """Close the agent's ends of all that it shares with the worker, and end the process beside it."""
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
    """A process that a worker started, and that joined a process group."""

    def __init__(self, number: int, pid: int, attempt: str, trace: int, stack: int, pidfd: int) -> None:
        super().__init__(number, pid, attempt, trace, stack)
        self.pidfd = pidfd
        self.ended = 0.0
        """Unix time, once it has ended."""
        self.leaving: Leaving | None = None

    def end(self) -> None:
        """It has ended, just now unless that is known."""
        self.ended, self.is_running = self.ended or time.time(), False

    def find_status(self) -> int | None:
        """Its wait status; None where nobody knows it."""
        with suppress(OSError):  # it is no child of the agent's
            # Not taken away: it may be a worker, whose end others wait for.
            end = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if end is not None:
                return end.si_status << 8 if end.si_code == os.CLD_EXITED else end.si_status
        with suppress(OSError):  # an older kernel, or nobody has waited for it yet
            info = bytearray(struct.pack("Q", _HAS_STATUS).ljust(_INFO_BYTES, b"\0"))
            fcntl.ioctl(self.pidfd, _PIDFD_GET_INFO, info)
            if struct.unpack_from("Q", info)[0] & _HAS_STATUS:
                return int(struct.unpack_from("i", info, _STATUS_AT)[0])
        return None

    def exited(self, status: int | None) -> Exited:
        """How it ended; an orderly end of which no kernel tells the code has the one that it was to have."""
        ended = self.ended
        if status is not None:
            return self.describe_exit(ended, os.WEXITSTATUS(status), os.WTERMSIG(status))
        code = self.leaving.code if self.leaving else None
        return self.describe_exit(ended, int(self.raised is not None) if self.leaving and code is None else code, 0)

    def close(self) -> None:
        """Close the agent's ends of all that it shares with the process."""
        super().close()
        with suppress(OSError):
            os.close(self.pidfd)
