"""The agent's side of processes that a script started and that joined a process group: read, asked, seen to end."""

from __future__ import annotations

import fcntl
import os
import selectors
import struct
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress

from . import processes
from .config import NOTES_BYTES
from .messages import wire
from .messages.agent import (
    MOST_OF_A_WORKER,
    Exited,
    Joined,
    Joining,
    Leaving,
    Limited,
    Note,
    Raised,
    Stack,
    Trace,
    number_of,
    worker_of,
)
from .rank.joining import STACK_SIGNAL
from .statement import Letter
from .trace_file import LIMIT_BYTES, TraceFile

_MOST_AT_A_TIME = 256
"""So many of a node are read at a time: each takes three descriptors."""
_MOST_RANKS = 1 << 12
_MOST_STACK_BYTES = 256 * 1024
_F_GET_SEALS = 1034
_PIDFD_GET_INFO = 0xC040FF0B
"""Its answer, from Linux 6.15 on, has the wait status of a process that was waited for."""
_INFO_BYTES, _STATUS_AT, _HAS_STATUS = 64, 60, 8
_STATUS_PATIENCE_S = 0.5
"""So long it may take whoever started a process to wait for it."""


class Process:
    """One such process."""

    def __init__(self, number: int, pid: int, pidfd: int, trace: TraceFile, stack_fd: int, attempt: str) -> None:
        self.number = number
        self.attempt = attempt
        self.pid = pid
        self.pidfd = pidfd
        self.trace = trace
        self.ended: float | None = None
        """Unix time; None while it runs."""
        self.stopped = False
        """Whether the lab asked it to end."""
        self.raised: Raised | None = None
        self.left: Leaving | None = None
        self.told = False
        """Whether the lab knows of its end."""
        self._stack_fd = stack_fd
        self._stack_begin = 0

    def ask_for_stack(self) -> None:
        """Have it write its stack, and forget what it wrote before."""
        self._stack_begin = os.fstat(self._stack_fd).st_size
        if self.ended is None and processes.catching(STACK_SIGNAL, [self.pid]):
            with suppress(OSError):
                os.kill(self.pid, STACK_SIGNAL)

    def stack(self) -> str:
        """What it has written since it was asked."""
        return os.pread(self._stack_fd, _MOST_STACK_BYTES, self._stack_begin).decode("utf-8", "replace")

    def status(self) -> int | None:
        """Its wait status; None where nobody tells."""
        with suppress(OSError):  # it is no child of the agent's
            # Not taken away: it may be a worker, whose end others wait for.
            said = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if said is not None:
                return said.si_status << 8 if said.si_code == os.CLD_EXITED else said.si_status
        with suppress(OSError):  # an older kernel, or nobody has waited for it yet
            told = bytearray(struct.pack("Q", _HAS_STATUS).ljust(_INFO_BYTES, b"\0"))
            fcntl.ioctl(self.pidfd, _PIDFD_GET_INFO, told)
            if struct.unpack_from("Q", told)[0] & _HAS_STATUS:
                return int(struct.unpack_from("i", told, _STATUS_AT)[0])
        return None

    def exited(self, node: str, run: str, status: int | None) -> Exited:
        """What there is to say of its end."""
        raised, left = self.raised, self.left
        code = left.code if left is not None else None
        killed_by = 0
        if status is not None:
            killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            code = None if killed_by else os.WEXITSTATUS(status)
        elif left is not None and code is None:
            code = 1 if raised is not None else 0  # an orderly end of which no kernel tells the code
        return Exited(
            rank=self.number,
            time=self.ended or time.time(),
            node=node,
            run=run,
            code=code,
            signal=processes.signal_name(killed_by),
            stopped=self.stopped,
            error=raised.error if raised is not None else "",
            traceback=raised.traceback if raised is not None else "",
            raised=raised.time if raised is not None else None,
            stack=self.stack() if killed_by else "",
            attempt=self.attempt,
        )

    def close(self) -> None:
        """Let go of everything."""
        for fd in (self.pidfd, self._stack_fd):
            with suppress(OSError):
                os.close(fd)
        self.trace.close()


class Joiners:
    """Those of one run on this node.

    Args:
        run: its name.
        node: name of this node.
        emit: sends a message to the lab.
        notes_bytes: what those of a worker may note together.
    """

    def __init__(
        self, run: str, node: str, emit: Callable[[wire.Message], None], notes_bytes: int = NOTES_BYTES
    ) -> None:
        self._most_notes_bytes = notes_bytes
        self._run = run
        self._node = node
        self._emit = emit
        self._by_pid: dict[int, Process] = {}
        self._counts: Counter[int] = Counter()
        """How many there were of each worker."""
        self._notes_bytes: Counter[int] = Counter()
        self._trace_bytes: Counter[int] = Counter()
        """What all of a worker noted, and wrote into their traces: together they may have as much as a worker."""
        self._exceeded: set[tuple[int, str]] = set()
        """Workers and what of theirs there was more of."""

    def __iter__(self) -> Iterator[Process]:
        return iter(list(self._by_pid.values()))

    @property
    def traces(self) -> list[TraceFile]:
        """What they write."""
        return [process.trace for process in self]

    def register(self, selector: selectors.BaseSelector) -> None:
        """Have a selector wait for the end of each."""
        for process in self:
            if process.ended is None:
                selector.register(process.pidfd, selectors.EVENT_READ)

    def take(self, worker: int, letter: Letter, attempt: str = "") -> bool:
        """Take what such a process said, or one that becomes such a process by it; False: somebody else said it."""
        told, process = letter.told, self._by_pid.get(letter.pid)
        if isinstance(told, Joining):
            if process is None:
                self._begin(worker, told, letter, attempt)
            return True
        if process is None or process.ended is not None:
            return isinstance(told, Leaving)
        if isinstance(told, Raised):
            process.raised = told._replace(time=min(told.time, time.time()))
        elif isinstance(told, Leaving):
            process.left = told
        elif isinstance(told, Note):
            if self._has_room(process, "notes", self._notes_bytes, letter.bytes, self._most_notes_bytes):
                self._emit(told._replace(rank=process.number, node=self._node, run=self._run, attempt=process.attempt))
        else:
            return False
        return True

    def _begin(self, worker: int, told: Joining, letter: Letter, attempt: str) -> None:
        """Read a process from now on, if there is nothing wrong with what it sent; what is taken is no more its own."""
        nth, sane = self._counts[worker], worker >= 0 and 0 <= told.rank < told.world_size <= _MOST_RANKS
        room = nth < MOST_OF_A_WORKER and len(self._by_pid) < _MOST_AT_A_TIME
        if not (sane and room and len(letter.fds) == 2 and all(map(_is_memory, letter.fds))):
            return
        try:
            pidfd = os.pidfd_open(letter.pid)
        except (OSError, AttributeError):  # it has ended, or this system has none
            return
        self._counts[worker] += 1
        trace, stack = letter.fds
        letter.fds.clear()
        process = Process(number_of(worker, nth), letter.pid, pidfd, TraceFile(made=trace), stack, attempt)
        self._by_pid[letter.pid] = process
        said = (letter.pid, told.rank, told.world_size, told.meeting[:300])
        self._emit(Joined(process.number, time.time(), self._node, self._run, *said, attempt))

    def see_ends(self, ready: Collection[int]) -> bool:
        """Note which have ended, of those whose descriptors are ready; returns whether there are any."""
        ended = [process for process in self if process.ended is None and process.pidfd in ready]
        for process in ended:
            process.ended = time.time()
        return bool(ended)

    def tell_of_ends(self, *, last: bool = False) -> None:
        """Tell the lab of those that have ended, how they did and what they wrote; `last`: nobody is waited for."""
        for process in self:
            if process.ended is None:
                continue
            status = process.status()
            if (
                status is None
                and process.left is None
                and not last
                and time.time() < process.ended + _STATUS_PATIENCE_S
            ):
                continue
            for chunk in process.trace.chunks(ended=True):
                self._pass_on(process, chunk)
            self._emit(process.exited(self._node, self._run, status))
            del self._by_pid[process.pid]
            process.close()

    def send_traces(self, congested: Callable[[], bool]) -> bool:
        """Pass on what they have written, as long as what is sent gets through; True if something was left."""
        for process in self:
            for chunk in process.trace.chunks():
                self._pass_on(process, chunk)
                if congested():
                    return True
        return False

    def _pass_on(self, process: Process, chunk: bytes) -> None:
        cut = process.trace.exceeded is not None
        if cut or self._has_room(process, "trace", self._trace_bytes, len(chunk), LIMIT_BYTES):
            self._emit(Trace(self._run, process.number, chunk, process.attempt))
        else:
            process.trace.cut("trace", LIMIT_BYTES)

    def _has_room(self, process: Process, what: str, taken: Counter[int], size: int, limit_bytes: int) -> bool:
        """Whether all that a worker started may have so much more of something; says so once where they may not."""
        worker = worker_of(process.number)
        taken[worker] += size
        if taken[worker] <= limit_bytes:
            return True
        if (worker, what) not in self._exceeded:
            self._exceeded.add((worker, what))
            self._emit(Limited(time.time(), self._node, self._run, worker, what, limit_bytes, 0, process.attempt))
        return False

    def stop(self) -> None:
        """The lab stops the workers that started them."""
        for process in self:
            process.stopped |= process.ended is None

    def ask_for_stacks(self) -> None:
        """Have each write where it is."""
        for process in self:
            process.ask_for_stack()

    def tell_stacks(self) -> None:
        """Tell the lab where each is."""
        for process in self:
            if process.ended is None:
                self._emit(Stack(process.number, time.time(), self._node, self._run, process.stack(), process.attempt))

    def end(self) -> None:
        """All of them are dead: tell how."""
        for process in self:
            process.ended = process.ended or time.time()
        self.tell_of_ends(last=True)


def _is_memory(fd: int) -> bool:
    """Whether a descriptor is a file in memory: reading it never waits for anybody, and takes no more than is there."""
    try:
        fcntl.fcntl(fd, _F_GET_SEALS)
        os.pread(fd, 0, 0)
    except OSError:
        return False
    return True
