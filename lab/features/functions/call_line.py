"""Carries bytes between whoever calls the ranks of a run and each of them; to be used from any thread."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from lab.node.messages.agent import CALLED, Exited, Input, Output, Taken, WorkerStart
from lab.run.stdin import Stdin

if TYPE_CHECKING:
    from lab.node.messages import wire
    from lab.plan.plan import WorkerPlan
    from lab.run.conversation import Conversation

_MOST_UNDERWAY_BYTES = 1 << 18
_PROGRAM = "labnode/features/functions/on_node/call_program.py"
"""What such a rank runs in the place of a script, below what its node imports from."""
_CHUNK_BYTES = 1 << 16


class CallLine(Stdin):
    """Handed to a run with its options.

    Args:
        heard: takes what a rank answered: its number, and any bytes.
        ended: told that a rank has ended; both are called by the thread that drives the run, and return quickly.
    """

    def __init__(self, heard: Callable[[int, bytes], None], ended: Callable[[int], None]) -> None:
        self._heard = heard
        self._ended = ended
        self.timeout_s = 0.0
        """How long the plan of the run allows it to take; the line says how much more that is."""
        self._lock = threading.Lock()
        self._nodes: dict[int, str] = {}
        self._waiting: dict[int, bytearray] = {}
        self._underway: dict[int, int] = {}
        self._hung_up: set[int] = set()
        """Ranks that have been told, or cannot be told any more, that nothing follows."""
        self._last: set[int] = set()
        """Ranks for which nothing follows what was sent."""
        self._given_up = False
        self._agents: Conversation | None = None
        self._began: float | None = None
        self._call: tuple[float, float] | None = None
        """When the call that is under way was made, and how long it may take."""
        self._bell, self._button = socket.socketpair()
        for end in (self._bell, self._button):
            end.setblocking(False)

    # -- for whoever calls

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those that there are, once the run has begun."""
        return tuple(self._nodes)

    def call(self, data: bytes, timeout_s: float) -> None:
        """Send bytes to every rank; from now on, or once the ranks are let go, the run has so long."""
        with self._lock:
            self._call = (time.monotonic(), timeout_s)
        self.send(data)

    def rest(self) -> None:
        """Nothing is under way: time does not count."""
        with self._lock:
            self._call = None

    def send(self, data: bytes, rank: int | None = None) -> None:
        """Send bytes to a rank, or to all of them; before the run has begun, once it does."""
        with self._lock:
            for one in self._nodes if self._nodes and rank is None else (rank,):
                self._waiting.setdefault(-1 if one is None else one, bytearray()).extend(data)
        self._ring()

    def hang_up(self, *ranks: int) -> None:
        """Have these ranks, or all, end as soon as they have answered what was sent."""
        self._last.update(ranks or self._nodes)
        self._ring()

    def give_up(self) -> None:
        """Have the run end at once, as if somebody had interrupted it."""
        self._given_up = True
        self._ring()

    def close(self) -> None:
        """Let go of what it holds, once the run is over."""
        self._bell.close()
        self._button.close()

    def _ring(self) -> None:
        with suppress(OSError):  # it rings already, or the run is over
            self._button.send(b".")

    # -- for the run

    @property
    def held(self) -> bool:
        """Whether nothing is under way."""
        return self._call is None

    @property
    def held_s(self) -> float:
        """How much longer the run may take than its plan says, so that it is what the call under way may take."""
        call, began = self._call, self._began
        if call is None or began is None:
            return 0.0
        since, timeout_s = call
        return max(since, began) - began + timeout_s - self.timeout_s

    @property
    def allowed_s(self) -> float | None:
        """How long the call under way may take."""
        return self._call[1] if self._call is not None else None

    def kind(self, rank: int) -> str:
        """What a rank reads."""
        return CALLED

    def start(self, worker: WorkerPlan) -> WorkerStart:
        """What a worker is started with."""
        self._nodes[worker.rank] = worker.node
        return super().start(worker)._replace(script=_PROGRAM)

    def begin(self, agents: Conversation) -> None:
        """The ranks were let go: send what waits."""
        with self._lock:
            to_all = self._waiting.pop(-1, bytearray())
            self._waiting = {rank: to_all + self._waiting.get(rank, bytearray()) for rank in self._nodes}
            self._underway = dict.fromkeys(self._nodes, 0)
        self._began, self._agents = time.monotonic(), agents
        agents.hear(self._bell.fileno(), self._attend)
        self._attend()

    def hear(self, message: wire.Message) -> None:
        """Take what a rank answered, has read, or that it has ended."""
        if isinstance(message, Output):
            if message.rank in self._nodes:
                self._heard(message.rank, message.data)
        elif isinstance(message, Taken):
            self._underway[message.rank] = max(0, self._underway.get(message.rank, 0) - message.bytes)
            if message.closed:
                self._hung_up.add(message.rank)
            self._feed()
        elif isinstance(message, Exited):
            self._hung_up.add(message.rank)
            self._ended(message.rank)

    def end(self) -> None:
        """The ranks have ended, or are about to; those that wait for a call are told that none follows."""
        self._feed()
        if self._agents is not None:
            self._agents.ignore(self._bell.fileno())
        self._agents = None

    def _attend(self) -> None:
        with suppress(BlockingIOError):
            self._bell.recv(4096)
        if self._given_up:
            raise KeyboardInterrupt
        self._feed()

    def _feed(self) -> None:
        agents = self._agents
        for rank, node in self._nodes.items() if agents is not None else ():
            while agents is not None and rank not in self._hung_up:
                room = _MOST_UNDERWAY_BYTES - self._underway[rank]
                with self._lock:
                    waiting = self._waiting[rank]
                    chunk = bytes(waiting[: min(room, _CHUNK_BYTES)])
                    del waiting[: len(chunk)]
                    last = rank in self._last and not waiting
                if not chunk and not last:
                    break
                self._underway[rank] += len(chunk)
                if last:
                    self._hung_up.add(rank)
                agents.say(node, Input(agents.run, rank, chunk, last=last))
                if not chunk:
                    break
