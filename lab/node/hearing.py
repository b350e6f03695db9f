"""What the workers of a run print, state and record, for the lab; and what the lab has for them to read."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Sequence

from . import joined, limits, processes, tcp, warm
from .config import Config
from .messages import agent as messages
from .messages import wire
from .messages.agent import (
    ANSWERS,
    STARTER,
    Grant,
    Imported,
    Input,
    Joining,
    Launched,
    Leaving,
    Raised,
    Reached,
    Taken,
    Window,
)
from .rank_process import Worker
from .statement import Letter, waiting_statements

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
        told: limits.Limits,
        emit: Callable[[wire.Message], None],
        adopt: Callable[[Worker, Launched, Letter], object],
    ) -> None:
        self._adopt = adopt
        self._run = run
        self._node = config.node
        self._workers = workers
        self._limits = told
        self._emit = emit
        self.joiners = joined.Joiners(run, config.node, emit, config.notes_bytes)
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
            self._emit(messages.Trace(self._run, worker.rank, chunk, worker.attempt))
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
                self._emit(told._replace(attempt=worker.attempt) if isinstance(told, messages.Note) else told)

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
                stack = messages.Stack(worker.rank, time.time(), self._node, self._run, text, worker.attempt)
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
