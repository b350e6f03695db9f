"""Limits that a run reaches in its node, and what is said of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from . import memory, processes
from .config import Config
from .messages.agent import CHECK, STARTER, Claim, Limited
from .rank_process import Worker


class Limits:
    """Tells which limits a run reaches: those of a rank once it has ended, those of the node at the end.

    Args:
        claim: says what the limits of a rank are.
        config: of the node.
        emit: sends what there is to say.
    """

    def __init__(self, claim: Claim, config: Config, emit: Callable[[Limited], None]) -> None:
        self._claim = claim
        self._node = config.node
        self._notes_bytes = config.notes_bytes
        self._emit = emit
        self._told: dict[tuple[str, int, str], int] = {}
        self._killed, self._refused = oom_kills(), _forks_refused()
        self._reached_by: int | None = None
        """Who reaches what limits the node from now on: its ranks, or the check, whose rank this is then."""

    def begin_check(self) -> None:
        """All ranks have ended: say what they reached; the rest is reached by the check of the scenario."""
        self.tell_of_node()
        self._killed, self._refused, self._reached_by = oom_kills(), _forks_refused(), CHECK

    def room_for_output(self, worker: Worker, size: int) -> int:
        """How many of the next bytes that a worker printed are kept."""
        room = max(0, self._claim.output_bytes - worker.output_bytes)
        worker.output_bytes += size
        return min(room, size)

    def has_room_for_note(self, worker: Worker, size: int) -> bool:
        """Whether a note is kept."""
        worker.note_bytes += size
        return worker.note_bytes <= self._notes_bytes

    def killed_by_kernel(self) -> bool:
        """Whether memory ran out and something was killed that nobody has asked about yet."""
        if oom_kills() <= self._killed:
            return False
        self._killed += 1
        return True

    def tell(self, worker: Worker) -> None:
        """Say how much of a worker's was dropped, if that is more than was said before."""
        for what, limit, got in (
            ("output", self._claim.output_bytes, worker.output_bytes),
            ("notes", self._notes_bytes, worker.note_bytes),
        ):
            if got > limit:
                self._tell_once(worker, what, limit, got - limit)
        if worker.trace is not None and worker.trace.exceeded is not None:
            self._tell_once(worker, *worker.trace.exceeded, 0)

    def _tell_once(self, worker: Worker, what: str, limit: int, excess: int) -> None:
        if self._told.get((worker.attempt, worker.rank, what), -1) < excess:
            self._told[worker.attempt, worker.rank, what] = excess
            self.say(what, limit, excess, worker.rank, worker.attempt)

    def tell_of_node(self) -> None:
        """Say what the kernel refused to processes of the run, and what it killed besides workers."""
        for what, limit, count in (
            ("processes", _limit("pids.max", "pids/pids.max"), _forks_refused() - self._refused),
            ("memory", _limit("memory.max", "memory/memory.limit_in_bytes"), oom_kills() - self._killed),
        ):
            if count > 0:
                self.say(what, limit, count)

    def say(self, what: str, limit: int, excess: int, rank: int | None = None, attempt: str = "") -> None:
        """Tell of a limit that was reached, see `Limited`."""
        rank = self._reached_by if rank is None else rank
        self._emit(Limited(time.time(), self._node, self._claim.run, rank, what, limit, excess, attempt))


def what_to_kill(limit_bytes: int, running: Iterable[Worker], keep: int | None) -> tuple[Worker | None, int, set[int]]:
    """What the kernel would kill in a container whose limit is reached: what holds the most, how much, and all of it.

    That is a worker with everything that it started, or what has outlived its worker; nothing below the limit.
    """
    sizes = memory.sizes_over(limit_bytes, processes.descendants(os.getpid()))
    if not sizes:
        return None, 0, set()
    trees: list[tuple[Worker, set[int]]] = []
    for one in sorted(running, key=lambda worker: worker.rank == STARTER):  # below which its workers are
        tree = {one.pid, *processes.descendants(one.pid)}
        trees.append((one, tree.difference(*(other for _, other in trees))))
    outlived = sizes.keys() - {keep}.union(*(tree for _, tree in trees))
    candidates: list[tuple[Worker | None, set[int]]] = [*trees, (None, outlived)]
    held, worker, pids = max(
        ((_held(sizes, pids), worker, pids) for worker, pids in candidates), key=lambda one: one[0]
    )
    return worker, held, pids


def _held(sizes: Mapping[int, int], pids: Iterable[int]) -> int:
    return sum(sizes.get(pid, 0) for pid in pids)


def oom_kills() -> int:
    """How often the kernel has killed something in this cgroup because memory ran out; 0 where it does not say."""
    return _counted("oom_kill", "memory.events", "memory/memory.oom_control")


def _forks_refused() -> int:
    """How often something in this cgroup could not start a process or thread because of its limit."""
    return _counted("max", "pids.events", "pids/pids.events")


def _counted(what: str, *names: str) -> int:
    for name in names:
        with suppress(OSError, ValueError), open(f"/sys/fs/cgroup/{name}") as file:
            for line in file:
                key, _, value = line.partition(" ")
                if key == what:
                    return int(value)
    return 0


def _limit(*names: str) -> int:
    for name in names:
        with suppress(OSError, ValueError), open(f"/sys/fs/cgroup/{name}") as file:
            return int(file.read())
    return 0
