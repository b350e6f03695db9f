"""What the processes of a run print, state and record, for the lab; and what the lab has for them to read."""

from __future__ import annotations

import fcntl
import os
import selectors
import struct
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress

from . import processes, tcp, warm
from .config import NOTES_BYTES, Config
from .limits import Limits
from .messages import agent as messages
from .messages import wire
from .messages.agent import (
    ANSWERS,
    MOST_OF_A_WORKER,
    STARTER,
    Exited,
    Grant,
    Imported,
    Input,
    Joined,
    Joining,
    Launched,
    Leaving,
    Limited,
    Note,
    Raised,
    Reached,
    Stack,
    Taken,
    Trace,
    Window,
    number_of,
    worker_of,
)
from .rank.joining import STACK_SIGNAL
from .rank_process import Worker
from .statement import Letter, waiting_statements
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


_READ_BYTES = 1 << 16


class Hearing:
    """The agent's ends of everything between it and the workers of one run.

    Args:
        run: its name.
        config: of this node.
        workers: in the order of their start; they come and go.
        told: takes note of what limits are reached.
        emit: sends a message to the lab.
        adopt: has a process that a starter started be a worker.
    """

    def __init__(
        self,
        run: str,
        config: Config,
        workers: Sequence[Worker],
        told: Limits,
        emit: Callable[[wire.Message], None],
        adopt: Callable[[Worker, Launched, Letter], object],
    ) -> None:
        self._adopt = adopt
        self._run = run
        self._node = config.node
        self._workers = workers
        self._limits = told
        self._emit = emit
        self.joiners = Joiners(run, config.node, emit, config.notes_bytes)
        """Processes that workers started and that joined a process group."""
        self.tcp = tcp.Reports(run, config, emit)
        """What is told of connections between the nodes."""
        self.imported: set[str] = set()
        """Slow parts of torch that a worker had to import."""

    def register(self, selector: selectors.BaseSelector) -> None:
        """Have a selector wait until a worker says something, or takes what it is to read."""
        for worker in self._workers:
            status = [worker.ends["status"]] if "status" in worker.ends and worker.status is None else []
            for fd in (worker.notes.fileno(), *worker.streams, *status):
                selector.register(fd, selectors.EVENT_READ)
            if worker.inlet.waiting is not None:
                selector.register(worker.inlet.waiting, selectors.EVENT_WRITE)
        self.joiners.register(selector)

    def pass_on(self, ready: set[int]) -> None:
        """Pass on what can be read and written by those descriptors that are ready."""
        for worker in list(self._workers):
            if worker.notes.fileno() in ready:
                self.read_notes(worker)
            for fd in [fd for fd in worker.streams if fd in ready]:
                self._read_stream(worker, fd)
            if worker.inlet.waiting in ready:
                self._tell_taken(worker.rank, *worker.inlet.flush())
        if self.joiners.see_ends(ready):
            for worker in self._workers:  # what they said last
                self.read_notes(worker)
            self.joiners.tell_of_ends()

    def _read_stream(self, worker: Worker, fd: int) -> int:
        try:
            chunk = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError:  # a pseudo-terminal that its worker has no more
            chunk = b""
        if not chunk:
            os.close(fd)
            del worker.streams[fd]
            return 0
        answers = worker.streams[fd] == ANSWERS
        room = len(chunk) if answers else self._limits.room_for_output(worker, len(chunk))
        if room:
            output = messages.Output(self._run, worker.rank, worker.streams[fd], time.time(), chunk[:room])
            self._emit(output._replace(attempt=worker.attempt))
        return len(chunk)

    def read_all(self, worker: Worker) -> None:
        """Pass on what is in a worker's pipes now; a process that outlives it may go on filling them."""
        for fd in list(worker.streams):
            left = processes.readable_bytes(fd)
            while left > 0 and (got := self._read_stream(worker, fd)):
                left -= got

    def hear_out(self) -> None:
        """Take what was printed and stated last, now that every process of the run is dead."""
        for worker in self._workers:
            self.read_all(worker)
            self.read_notes(worker)
        self.joiners.end()
        self.tcp.close()

    def send_traces(self, congested: Callable[[], bool] = lambda: False) -> bool:
        """Pass on whole lines of the recorders, as long as what is sent gets through; True if something was left."""
        left = any(self.send_trace(worker, congested) for worker in self._workers)
        return left or self.joiners.send_traces(congested)

    def send_trace(self, worker: Worker, congested: Callable[[], bool] = lambda: False) -> bool:
        """The same of one."""
        for chunk in worker.trace.chunks(ended=worker.status is not None) if worker.trace is not None else ():
            self._emit(Trace(self._run, worker.rank, chunk, worker.attempt))
            if congested():
                return True
        return False

    def read_notes(self, worker: Worker) -> None:
        """Take what a worker has stated, or a process that it started."""
        for letter in waiting_statements(worker.notes):
            told, size = letter.told, letter.bytes
            if isinstance(told, Launched):
                self._adopt(worker, told, letter)
                continue
            if self.joiners.take(worker.rank, letter, worker.attempt) or told.rank != worker.rank:
                continue
            if isinstance(told, Raised):  # later than now is a lie that would move the blame
                worker.raised = told._replace(time=min(told.time, time.time()))
            elif isinstance(told, Imported):
                self.imported.update({*told.names}.intersection(warm.missing_modules()))
            elif isinstance(told, Reached):
                self.send_traces()  # what is about to be done may be the end of this node
                self._emit(told._replace(node=self._node, run=self._run, attempt=worker.attempt))
            elif not isinstance(told, (Joining, Leaving)) and self._limits.has_room_for_note(worker, size):
                told = told._replace(node=self._node, run=self._run)
                self._emit(told._replace(attempt=worker.attempt) if isinstance(told, Note) else told)

    # -- where they are

    def request_stacks(self) -> None:
        """Have every running worker write its Python stack, and the ranks that scripts started theirs."""
        self.tcp.ask()
        self.joiners.ask_for_stacks()
        for worker in self._workers:
            if worker.rank != STARTER:  # which may be any program
                worker.begin_stack()

    def report_stacks(self) -> None:
        """Send what they wrote."""
        self.tcp.tell()
        self.joiners.tell_stacks()
        for worker in self._workers:
            worker.read_stack()
            if worker.status is None and worker.rank != STARTER:
                worker.read_stacks_of_forks({process.pid for process in self.joiners})
                text = worker.stack.decode("utf-8", "replace")
                stack = Stack(worker.rank, time.time(), self._node, self._run, text, worker.attempt)
                self._emit(stack)

    # -- what they are to read

    def give(self, given: Input) -> None:
        """Give a worker something to read."""
        worker = self._of(given.rank)
        if worker is None:
            self._tell_taken(given.rank, 0, closed=True)
        else:
            self._tell_taken(given.rank, *worker.inlet.put(given.data, last=given.last))

    def grant(self, grant: Grant) -> None:
        """Let a worker that asked for the terminal have it."""
        worker = self._of(grant.rank)
        if worker is not None:
            worker.inlet.grant()

    def resize(self, window: Window) -> None:
        """Tell a worker how large its terminal is."""
        worker = self._of(window.rank)
        if worker is not None:
            worker.inlet.resize(window.rows, window.columns)

    def _of(self, rank: int) -> Worker | None:
        """The last worker that was given a rank."""
        return next((worker for worker in reversed(self._workers) if worker.rank == rank), None)

    def _tell_taken(self, rank: int, taken: int, closed: bool) -> None:
        if taken or closed:
            self._emit(Taken(self._run, rank, taken, closed))
