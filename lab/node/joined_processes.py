"""Processes that workers started and that joined a process group, as their agent reads them to their end."""

from __future__ import annotations

import fcntl
import os
import selectors
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import partial

from .messages import agent as messages
from .messages.wire import Sender
from .rank_process import JoinedProcess
from .statement import Datagram

_MOST_AT_A_TIME = 256
"""Limit for those that a node's agent reads at a time: each needs three descriptors."""
_MOST_RANKS = 1 << 12
_F_GET_SEALS = 1034
_STATUS_PATIENCE_S = 0.5
"""Time for a process's parent to wait for it, which gives the wait status to the agent."""


class JoinedProcesses:
    """Processes of one run on this node that workers started and that joined a process group.

    Args:
        send: sends a message to the lab.
        count: counts their notes and traces, as `Limits.count`; together they may have as much as a worker.
    """

    def __init__(self, send: Sender, count: Callable[[int, str, str, int], int]) -> None:
        self._send, self._count_bytes = send, count
        self._known: dict[tuple[int, int], JoinedProcess] = {}
        """By process identifier and the rank that the process claims."""
        self._counts: Counter[int] = Counter()
        """Number of processes by rank of the worker."""

    def __iter__(self) -> Iterator[JoinedProcess]:
        return iter(list(self._known.values()))

    def register(self, selector: selectors.BaseSelector) -> None:
        """Have a selector wait for the end of each."""
        for process in self:
            if process.is_running:
                selector.register(process.pidfd, selectors.EVENT_READ)

    def handle(self, worker: int, datagram: Datagram, attempt: str = "") -> bool:
        """Handle the statement of such a process, or of one that joins; return False if it is from another process."""
        statement = datagram.statement
        process = self._known.get((datagram.pid, statement.rank))
        if process is None and not getattr(statement, "thread", 0):  # notes come with another rank
            process = next((one for (pid, _), one in self._known.items() if pid == datagram.pid), None)
        if isinstance(statement, messages.Joining):
            if process is None:
                self._admit(worker, statement, datagram, attempt)
            return True
        if process is None or not process.is_running:
            return isinstance(statement, messages.Leaving)
        if isinstance(statement, messages.Raised):
            process.raised = statement._replace(time=min(statement.time, time.time()))
        elif isinstance(statement, messages.Leaving):
            process.leaving = statement
            if statement.stays:
                process.end()
                self.report_ends()
        elif isinstance(statement, messages.Note):
            if self._count(process, "notes", datagram.bytes) == datagram.bytes:
                self._send(statement._replace(rank=process.rank, attempt=process.attempt))
        else:
            return False
        return True

    def _admit(self, worker: int, joining: messages.Joining, datagram: Datagram, attempt: str) -> None:
        """Begin to read a process if its message is valid; this takes over the descriptors."""
        nth, sane = self._counts[worker], worker >= 0 and 0 <= joining.rank < joining.world_size <= _MOST_RANKS
        capacity = nth < messages.MOST_OF_A_WORKER and len(self._known) < _MOST_AT_A_TIME
        if not (sane and capacity and len(datagram.fds) == 2 and all(map(_is_in_memory, datagram.fds))):
            return
        try:
            pidfd = os.pidfd_open(datagram.pid)
        except ProcessLookupError:  # it has ended, as this descriptor tells; its last statements follow
            pidfd, other = os.pipe()
            os.close(other)
        except (OSError, AttributeError):  # this system has none
            return
        self._counts[worker] += 1
        trace, stack = datagram.fds
        datagram.fds.clear()
        number = messages.number_of(worker, nth)
        process = JoinedProcess(number, datagram.pid, attempt, trace, stack, pidfd, joining.thread)
        self._known[datagram.pid, joining.rank] = process
        event = messages.Joined(process.rank, time.time(), pid=datagram.pid, claimed_rank=joining.rank, attempt=attempt)
        self._send(event._replace(world_size=joining.world_size, meeting=joining.meeting[:300]))

    def detect_ends(self, ready: Collection[int]) -> bool:
        """Note which processes have ended, of those whose descriptors are ready; return whether there are any."""
        ended = [process for process in self if process.is_running and process.pidfd in ready]
        for process in ended:
            process.end()
        return bool(ended)

    def report_ends(self, *, last: bool = False) -> None:
        """Report the end of each process that has ended, and its trace; `last`: do not wait for a wait status."""
        for key, process in [*self._known.items()]:
            if process.is_running:
                continue
            leaving = process.leaving  # until Python has ended, an extension may still abort the process
            known = last or (leaving is not None and (leaving.stays or leaving.code is not None))
            status = process.find_status()
            if status is None and not known and time.time() < process.ended + _STATUS_PATIENCE_S:
                continue
            self.send_trace(process)
            self._send(process.exited(status))
            del self._known[key]
            process.close()

    def send_trace(self, process: JoinedProcess) -> bool:
        """Send the trace of a process, see `RankProcess`."""
        return process.send_trace(self._send, partial(self._count, process, "trace"))

    def _count(self, process: JoinedProcess, what: str, size: int) -> int:
        return self._count_bytes(messages.worker_of(process.rank), process.attempt, what, size)

    def end(self) -> None:
        """Report how the processes ended: all of them are dead."""
        for process in self:
            process.end()
        self.report_ends(last=True)


def _is_in_memory(fd: int) -> bool:
    """Return whether a descriptor is a file in memory: reading it never blocks and never returns more than its size."""
    try:
        fcntl.fcntl(fd, _F_GET_SEALS)
        os.pread(fd, 0, 0)
    except OSError:
        return False
    return True
