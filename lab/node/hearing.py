"""What the processes of a run print, state and record, for the lab; and what the lab has for them to read."""

from __future__ import annotations

import fcntl
import os
import selectors
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from . import processes, tcp, warm
from .limits import Limits
from .messages import agent as messages
from .messages import wire
from .messages.agent import NOTES_BYTES, Config
from .rank_process import JoinedProcess, RankProcess, Worker
from .statement import Letter, waiting_statements
from .trace_file import LIMIT_BYTES

_MOST_AT_A_TIME = 256
"""So many of a node are read at a time: each takes three descriptors."""
_MOST_RANKS = 1 << 12
_F_GET_SEALS = 1034
_STATUS_PATIENCE_S = 0.5
"""So long it may take whoever started a process to wait for it."""
_READ_BYTES = 1 << 16
_CLEANING_EVERY_S = 1.0


class Sender:
    """Sends messages to the lab, each with the node and the run that it is about.

    Args:
        run: name of the run.
        node: name of this node.
        emit: sends a message.
    """

    def __init__(self, run: str, node: str, emit: Callable[[wire.Message], object]) -> None:
        self.run = run
        self.node = node
        self.emit = emit
        self._cleaning_sent = 0.0

    def __call__(self, message: Any) -> None:
        """Send a message."""
        if "node" in message._fields:
            message = message._replace(node=self.node, run=self.run)
        self.emit(message)

    def send_cleaning(self) -> None:
        """Report once a second that the agent is at it: whoever waits for the end of the run would give up."""
        now = time.monotonic()
        if now - self._cleaning_sent > _CLEANING_EVERY_S:
            self._cleaning_sent = now
            self.emit(messages.Cleaning(self.run))


class Joiners:
    """Processes of one run on this node that workers started, and that joined a process group.

    Args:
        send: sends a message to the lab.
        notes_bytes: what those of a worker may note together.
    """

    def __init__(self, send: Sender, notes_bytes: int = NOTES_BYTES) -> None:
        self._send = send
        self._most_bytes = {"notes": notes_bytes, "trace": LIMIT_BYTES}
        """What all of a worker may note, and write into their traces: together as much as a worker."""
        self._by_pid: dict[int, JoinedProcess] = {}
        self._counts: Counter[int] = Counter()
        """How many there were of each worker."""
        self._bytes: Counter[tuple[int, str]] = Counter()
        """What all of a worker noted, and wrote into their traces."""

    def __iter__(self) -> Iterator[JoinedProcess]:
        return iter(list(self._by_pid.values()))

    def register(self, selector: selectors.BaseSelector) -> None:
        """Have a selector wait for the end of each."""
        for process in self:
            if process.ended is None:
                selector.register(process.pidfd, selectors.EVENT_READ)

    def handle(self, worker: int, letter: Letter, attempt: str = "") -> bool:
        """Handle what such a process stated, or one that becomes such a process by it; False: somebody else did."""
        statement, process = letter.told, self._by_pid.get(letter.pid)
        if isinstance(statement, messages.Joining):
            if process is None:
                self._begin(worker, statement, letter, attempt)
            return True
        if process is None or process.ended is not None:
            return isinstance(statement, messages.Leaving)
        if isinstance(statement, messages.Raised):
            process.raised = statement._replace(time=min(statement.time, time.time()))
        elif isinstance(statement, messages.Leaving):
            process.leaving = statement
        elif isinstance(statement, messages.Note):
            if self._has_capacity(process, "notes", letter.bytes):
                self._send(statement._replace(rank=process.rank, attempt=process.attempt))
        else:
            return False
        return True

    def _begin(self, worker: int, joining: messages.Joining, letter: Letter, attempt: str) -> None:
        """Read a process from now on, if there is nothing wrong with what it sent; its descriptors are ours then."""
        nth, sane = self._counts[worker], worker >= 0 and 0 <= joining.rank < joining.world_size <= _MOST_RANKS
        capacity = nth < messages.MOST_OF_A_WORKER and len(self._by_pid) < _MOST_AT_A_TIME
        if not (sane and capacity and len(letter.fds) == 2 and all(map(_is_in_memory, letter.fds))):
            return
        try:
            pidfd = os.pidfd_open(letter.pid)
        except (OSError, AttributeError):  # it has ended, or this system has none
            return
        self._counts[worker] += 1
        trace, stack = letter.fds
        letter.fds.clear()
        process = JoinedProcess(messages.number_of(worker, nth), letter.pid, attempt, trace, stack, pidfd)
        self._by_pid[letter.pid] = process
        joined = messages.Joined(process.rank, time.time(), pid=letter.pid, said=joining.rank, attempt=attempt)
        self._send(joined._replace(world_size=joining.world_size, meeting=joining.meeting[:300]))

    def see_ends(self, ready: Collection[int]) -> bool:
        """Note which have ended, of those whose descriptors are ready; returns whether there are any."""
        ended = [process for process in self if process.ended is None and process.pidfd in ready]
        for process in ended:
            process.ended = time.time()
        return bool(ended)

    def report_ends(self, *, last: bool = False) -> None:
        """Report how those ended that have, and what they wrote; `last`: nobody is waited for."""
        for process in self:
            if process.ended is None:
                continue
            status, known = process.find_status(), last or process.leaving is not None
            if status is None and not known and time.time() < process.ended + _STATUS_PATIENCE_S:
                continue
            self.send_trace(process, ended=True)
            self._send(process.exited(status))
            del self._by_pid[process.pid]
            process.close()

    def send_trace(
        self, process: JoinedProcess, congested: Callable[[], bool] = lambda: False, *, ended: bool = False
    ) -> bool:
        """Pass on what one has written, as long as what is sent gets through; True if something was left."""
        trace = process.trace
        for chunk in trace.chunks(ended=ended) if trace else ():
            if trace and trace.exceeded is None and not self._has_capacity(process, "trace", len(chunk)):
                trace.cut("trace", self._most_bytes["trace"])
                continue
            self._send(messages.Trace(self._send.run, process.rank, chunk, process.attempt))
            if congested():
                return True
        return False

    def _has_capacity(self, process: JoinedProcess, what: str, size: int) -> bool:
        """Whether all that a worker started may have so much more of something; reports once where they may not."""
        worker, limit = messages.worker_of(process.rank), self._most_bytes[what]
        before = self._bytes[worker, what]
        self._bytes[worker, what] += size
        if before <= limit < before + size:
            self._send(messages.Limited(time.time(), rank=worker, what=what, limit=limit, attempt=process.attempt))
        return before + size <= limit

    def end(self) -> None:
        """All of them are dead: report how they ended."""
        for process in self:
            process.ended = process.ended or time.time()
        self.report_ends(last=True)


def _is_in_memory(fd: int) -> bool:
    """Whether a descriptor is a file in memory: reading it never waits for anybody, and takes no more than is there."""
    try:
        fcntl.fcntl(fd, _F_GET_SEALS)
        os.pread(fd, 0, 0)
    except OSError:
        return False
    return True


class Hearing:
    """The agent's ends of everything between it and the workers of one run.

    Args:
        config: of this node.
        workers: in the order of their start; they come and go.
        limits: those of a rank.
        send: sends a message to the lab.
        adopt: has a process that a starter started be a worker.
    """

    def __init__(
        self,
        config: Config,
        workers: Sequence[Worker],
        limits: Limits,
        send: Sender,
        adopt: Callable[[Worker, messages.Launched, Letter], object],
    ) -> None:
        self._workers = workers
        self._limits = limits
        self._send = send
        self._adopt = adopt
        self.joiners = Joiners(send, config.notes_bytes)
        self.tcp = tcp.Reports(send.run, config, send)
        """Reports connections between the nodes."""
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
                self._report_taken(worker.rank, *worker.inlet.flush())
        if self.joiners.see_ends(ready):
            for worker in self._workers:  # what they said last
                self.read_notes(worker)
            self.joiners.report_ends()

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
        stream = worker.streams[fd]
        kept = len(chunk) if stream == messages.ANSWERS else self._limits.count_output(worker, len(chunk))
        if kept:
            run, rank = self._send.run, worker.rank
            self._send(messages.Output(run, rank, stream, time.time(), chunk[:kept], worker.attempt))
        return len(chunk)

    def read_all(self, worker: Worker) -> None:
        """Pass on what is in a worker's pipes now; a process that outlives it may go on filling them."""
        for fd in list(worker.streams):
            left = processes.readable_bytes(fd)
            while left > 0 and (size := self._read_stream(worker, fd)):
                left -= size

    def read_last_words(self) -> None:
        """Pass on what was printed and stated last, now that every process of the run is dead."""
        for worker in self._workers:
            self.read_all(worker)
            self.read_notes(worker)
        self.joiners.end()
        self.tcp.close()

    def send_traces(self, congested: Callable[[], bool] = lambda: False) -> bool:
        """Pass on whole lines of the recorders, as long as what is sent gets through; True if something was left."""
        left = any(self.send_trace(worker, congested) for worker in self._workers)
        return left or any(self.joiners.send_trace(process, congested) for process in self.joiners)

    def send_trace(self, worker: Worker, congested: Callable[[], bool] = lambda: False) -> bool:
        """The same of one worker."""
        for chunk in worker.trace.chunks(ended=worker.status is not None) if worker.trace is not None else ():
            self._send(messages.Trace(self._send.run, worker.rank, chunk, worker.attempt))
            if congested():
                return True
        return False

    def read_notes(self, worker: Worker) -> None:
        """Handle what a worker has stated, or a process that it started."""
        for letter in waiting_statements(worker.notes):
            statement: Any = letter.told
            if isinstance(statement, messages.Launched):
                self._adopt(worker, statement, letter)
                continue
            if self.joiners.handle(worker.rank, letter, worker.attempt) or statement.rank != worker.rank:
                continue
            if "attempt" in statement._fields:
                statement = statement._replace(attempt=worker.attempt)
            if isinstance(statement, messages.Raised):  # later than now is a lie that would move the blame
                worker.raised = statement._replace(time=min(statement.time, time.time()))
            elif isinstance(statement, messages.Imported):
                self.imported.update({*statement.names}.intersection(warm.missing_modules()))
            elif isinstance(statement, messages.Reached):
                self.send_traces()  # what is about to be done may be the end of this node
                self._send(statement)
            elif self._limits.count_note(worker, letter.bytes):
                self._send(statement)

    # -- where they are

    def _running(self) -> list[RankProcess]:
        """Processes whose stacks can be asked for: a starter may be any program."""
        workers = [one for one in self._workers if one.status is None and one.rank != messages.STARTER]
        return [*(process for process in self.joiners if process.ended is None), *workers]

    def request_stacks(self) -> None:
        """Have every running worker write its Python stack, and the ranks that scripts started theirs."""
        self.tcp.ask()
        for process in self._running():
            process.begin_stack()

    def report_stacks(self) -> None:
        """Send what they wrote."""
        self.tcp.tell()
        for process in self._running():
            if isinstance(process, Worker):
                process.await_stacks_of_forks({joined.pid for joined in self.joiners})
            self._send(messages.Stack(process.rank, time.time(), text=process.stack, attempt=process.attempt))

    # -- what they are to read

    def give(self, given: messages.Input) -> None:
        """Give a worker something to read."""
        taken = [worker.inlet.put(given.data, last=given.last) for worker in self._of(given.rank)]
        self._report_taken(given.rank, *(taken[0] if taken else (0, True)))

    def grant(self, grant: messages.Grant) -> None:
        """Let a worker that asked for the terminal have it."""
        for worker in self._of(grant.rank):
            worker.inlet.grant()

    def resize(self, window: messages.Window) -> None:
        """Tell a worker how large its terminal is."""
        for worker in self._of(window.rank):
            worker.inlet.resize(window.rows, window.columns)

    def _of(self, rank: int) -> list[Worker]:
        """The last worker that was given a rank, if there is one."""
        return [worker for worker in self._workers if worker.rank == rank][-1:]

    def _report_taken(self, rank: int, taken: int, closed: bool) -> None:
        if taken or closed:
            self._send(messages.Taken(self._send.run, rank, taken, closed))
