"""The socket by which what a starter starts becomes a worker of the lab's own: who may, and what is said there.

Whoever connects is a `stub`. Nobody but the starter's user can, where users differ, and nobody is heard who does not
descend from a starter: no rank can have a worker started, or pass for one.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from signal import SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM

from . import processes
from .messages.agent import STARTER, WorkerStart
from .rank_process import Worker
from .stub import SIZE_BYTES, SOCKET_VARIABLE
from .users import Users

MOST_RANKS = 1 << 20
_ENDING = frozenset((SIGHUP, SIGINT, SIGQUIT, SIGTERM))
"""With these a starter stops a worker."""
_MOST_WAITING = 64
"""Stubs that have not said who they are, beyond those that may become workers."""
_INTRODUCTION_DEADLINE_S = 10.0
_LONGEST_INTRODUCTION_BYTES = 8 << 20
_MOST_PASSED = 8
_PASSED_NUMBERS = range(3, 100)
"""Descriptors that a worker may have from its starter; its others are elsewhere."""
_CREDENTIALS = "3i"
_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "RANK")
_LOCAL_RANKS = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK")
_RESTARTS = "TORCHELASTIC_RESTART_COUNT"
"""Who sets it may start workers several times, each time at a port of its own."""

Begin = Callable[[WorkerStart, Mapping[int, int]], Worker]
"""Starts a worker, with these descriptors: number there -> the agent's own."""


class JoinError(ValueError):
    """Why nobody becomes a worker, as a sentence about this process."""


@dataclass
class _Stub:
    """One that has connected."""

    socket: socket.socket
    since: float
    told: bytearray = field(default_factory=bytearray)
    passed: list[int] = field(default_factory=list)
    worker: Worker | None = None

    def answer(self, text: str) -> None:
        with suppress(OSError):  # it has gone
            self.socket.send(text.encode() + b"\n")

    def close(self) -> None:
        self.socket.close()
        for fd in self.passed:
            os.close(fd)
        self.passed = []


class Joins:
    """The join socket of one run on one node; there is none until it is opened.

    Args:
        path: where it is; only the agent may put anything there.
        users: of the run.
        begin: starts a worker, and lets it go.
    """

    def __init__(self, path: str, users: Users, begin: Begin) -> None:
        self._path = path
        self._users = users
        self._begin = begin
        self._listener: socket.socket | None = None
        self._stubs: list[_Stub] = []
        self._planned: dict[int, WorkerStart] = {}
        self.at_once = 0
        """So many workers may be there at a time."""
        self.starters: list[Worker] = []
        """Those whose processes may join."""

    def open(self, planned: Collection[WorkerStart], at_once: int) -> dict[str, str]:
        """Let starters have workers: these, or of any rank where none are planned; returns their variables for that."""
        self._planned.update((start.rank, start) for start in planned)
        self.at_once = max(self.at_once, at_once)
        if self._listener is None:
            with suppress(FileNotFoundError):
                os.unlink(self._path)
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.bind(self._path)
            os.chmod(self._path, 0o600)
            self._users.give(self._path, STARTER)
            self._listener.listen(128)
            self._listener.setblocking(False)
        return {SOCKET_VARIABLE: self._path}

    def register(self, selector: selectors.BaseSelector) -> None:
        """Have a selector wait until somebody connects, or says something."""
        if self._listener is not None:
            selector.register(self._listener, selectors.EVENT_READ)
        for stub in self._stubs:
            selector.register(stub.socket, selectors.EVENT_READ)

    def pass_on(self, ready: Collection[int]) -> None:
        """Act on what is said at those descriptors that are ready."""
        for stub in [one for one in self._stubs if one.socket.fileno() in ready]:
            self._hear(stub)
        if self._listener is not None and self._listener.fileno() in ready:
            self._accept(self._listener)
        late = time.monotonic() - _INTRODUCTION_DEADLINE_S
        for stub in [one for one in self._stubs if one.worker is None and one.since < late]:
            self._drop(stub)

    def tell_end(self, worker: Worker) -> None:
        """Have the stub of a worker that has ended end as it did."""
        for stub in [one for one in self._stubs if one.worker is worker]:
            status = worker.status or 0
            if os.WIFSIGNALED(status):
                stub.answer(f"signal {os.WTERMSIG(status)}")
            else:
                stub.answer(f"exit {os.WEXITSTATUS(status)}")
            self._drop(stub)

    def refuse_more(self) -> None:
        """Nobody joins any more."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for stub in [one for one in self._stubs if one.worker is None]:
            self._drop(stub)

    def close(self) -> None:
        """Have nothing to do with anybody any more."""
        self.refuse_more()
        for stub in list(self._stubs):
            self._drop(stub)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:  # whoever called has gone
            return
        connection.setblocking(False)
        stub = _Stub(connection, time.monotonic())
        waiting = sum(one.worker is None for one in self._stubs)
        if self._comes_from_a_starter(connection) and waiting < self.at_once + _MOST_WAITING:
            self._stubs.append(stub)
        else:
            stub.answer("refused it is not what a starter of this run started")
            stub.close()

    def _comes_from_a_starter(self, connection: socket.socket) -> bool:
        size = struct.calcsize(_CREDENTIALS)
        pid, uid, _ = struct.unpack(_CREDENTIALS, connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        running = {starter.pid for starter in self.starters if starter.status is None}
        return uid == self._users.worker(STARTER).uid and processes.is_below(pid, running)

    def _hear(self, stub: _Stub) -> None:
        try:
            data, passed, _, _ = socket.recv_fds(stub.socket, 1 << 18, _MOST_PASSED, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            data, passed = b"", []
        stub.passed += passed
        if not data or len(stub.passed) > _MOST_PASSED:
            self._lose(stub)
        elif stub.worker is not None:
            self._signal(stub.worker, data)
        else:
            stub.told += data
            size = int.from_bytes(stub.told[:SIZE_BYTES], "big")
            if len(stub.told) >= SIZE_BYTES + size:
                self._join(stub, bytes(stub.told[SIZE_BYTES : SIZE_BYTES + size]))
            elif size > _LONGEST_INTRODUCTION_BYTES:
                self._drop(stub)

    def _join(self, stub: _Stub, told: bytes) -> None:
        try:
            start, numbers = self._understood(told)
            if len(numbers) != len(stub.passed):
                raise JoinError("it passes other descriptors than it says")
            stub.worker = self._begin(start, dict(zip(numbers, stub.passed)))
        except (JoinError, OSError) as error:
            stub.answer(f"refused this process cannot become a worker: {error}")
            self._drop(stub)
            return
        stub.told.clear()
        for fd in stub.passed:
            os.close(fd)
        stub.passed = []

    def _understood(self, told: bytes) -> tuple[WorkerStart, list[int]]:
        start, numbers = understand(told, self._planned)
        own = {SOCKET_VARIABLE: self._path, **self._users.variables(STARTER)}  # which the starter handed down
        start = start._replace(env={name: value for name, value in start.env.items() if own.get(name) != value})
        running = [one.worker for one in self._stubs if one.worker is not None]
        if not 0 <= start.local_rank < self.at_once:
            raise JoinError(f"local rank {start.local_rank} is none of the {self.at_once} that this node has")
        if any(one.local_rank == start.local_rank or one.rank == start.rank for one in running):
            raise JoinError(f"rank {start.rank}, local rank {start.local_rank}, is there already")
        return start, numbers

    def _signal(self, worker: Worker, numbers: bytes) -> None:
        for number in numbers:
            worker.stopped |= number in _ENDING
            worker.signal_all(number)

    def _lose(self, stub: _Stub) -> None:
        """The stub was killed: so is its worker."""
        if stub.worker is not None and stub.worker.status is None:
            stub.worker.given_up = True
            stub.worker.signal_all(SIGKILL)
        self._drop(stub)

    def _drop(self, stub: _Stub) -> None:
        self._stubs.remove(stub)
        stub.close()


def understand(told: bytes, planned: Mapping[int, WorkerStart]) -> tuple[WorkerStart, list[int]]:
    """What a stub asks for, and the numbers of the descriptors that it passes.

    Raises:
        JoinError: it is no worker.
    """
    argv, numbers, env = _read(told)
    if not argv:
        raise JoinError("it names no script")
    if not all(number in _PASSED_NUMBERS for number in numbers):
        raise JoinError("it passes descriptors that a worker cannot have")
    rank = _number(env, _RANKS)
    if rank is None or rank >= MOST_RANKS:
        raise JoinError(f"its environment does not tell its rank: it has none of {', '.join(_RANKS)}")
    plan = planned.get(rank)
    if planned and plan is None:
        raise JoinError(f"rank {rank} is none of this node's")
    local_rank = plan.local_rank if plan is not None else _number(env, _LOCAL_RANKS)
    if local_rank is None:
        raise JoinError(f"its environment does not tell its local rank: it has none of {', '.join(_LOCAL_RANKS)}")
    attempt = f"{env.get('MASTER_ADDR', '')}:{env.get('MASTER_PORT', '')}" if _RESTARTS in env else ""
    whole = {**(plan.env if plan is not None else {}), **env}
    start = plan if plan is not None else WorkerStart(rank, local_rank, {}, [])
    return start._replace(env=whole, argv=argv, attempt=attempt), numbers


def _read(told: bytes) -> tuple[list[str], list[int], dict[str, str]]:
    """What a stub says, see `SIZE_BYTES`."""
    parts = [os.fsdecode(part) for part in told.split(b"\0")]
    try:
        words = 1 + int(parts[0])
        first = words + 1 + int(parts[words])
        numbers = [int(number) for number in parts[words + 1 : first]]
    except (ValueError, IndexError):
        raise JoinError("what it says cannot be read") from None
    variables = (variable.partition("=") for variable in parts[first:])
    return parts[1:words], numbers, {name: value for name, equals, value in variables if name and equals}


def _number(env: Mapping[str, str], names: Collection[str]) -> int | None:
    """The first of these variables that is a number."""
    for name in names:
        value = env.get(name, "")
        if value.isascii() and value.isdigit() and len(value) < 10:
            return int(value)
    return None
