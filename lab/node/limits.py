"""Limits that a run reaches in its node, and what no kernel looks after: local memory, the disk, traces that wait."""

from __future__ import annotations

import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice

from . import processes
from .files import walk_tree
from .messages.agent import CHECK, FILES_IN, STARTER, Claim, Config, Limited
from .rank_process import RankProcess, Worker
from .trace_file import LIMIT_BYTES, bound_held
from .users import User, Users


class Limits:
    """Keeps a run within limits, and reports which it reaches: those of a rank once it has ended, others at the end.

    Args:
        claim: says what the limits of a rank are.
        config: of the node; it has the others.
        send: sends a report.
        users: who the workers are.
        folders: where they can write, besides the folder that all nodes share.
    """

    def __init__(
        self, claim: Claim, config: Config, send: Callable[[Limited], None], users: Users, folders: Iterable[str]
    ) -> None:
        self._most_bytes = {"output": claim.output_bytes, "notes": config.notes_bytes, "trace": LIMIT_BYTES}
        """What a worker and the processes that it started may have of each; its own trace has a limit of its own."""
        self._bytes: Counter[tuple[int, str, str]] = Counter()
        """What a worker, of an attempt, had of it, with what was dropped."""
        self._config = config
        self._send = send
        self._users = users
        self._folders = (*folders, config.shared)
        self._disk: Disk | None = None
        self._unfilled: dict[int, str] = {}
        """File systems with a limit of their own that are not full yet: a folder in each, by its device."""
        self._unfilled_due = 0.0
        self._reported: dict[tuple[int, str, str], int] = {}
        self._killed, self._refused = _oom_kills(), _forks_refused()
        self._reached_by: int | None = None
        """Who reaches what limits the node from now on: its ranks, or the check, whose rank this is then."""

    def begin_check(self) -> None:
        """All ranks have ended: report what they reached; the rest is reached by the check of the scenario."""
        self.report_node()
        self._killed, self._refused, self._reached_by = _oom_kills(), _forks_refused(), CHECK

    def count(self, rank: int, attempt: str, what: str, size: int) -> int:
        """Count bytes of a worker, or of a process that it started; returns how many of them are kept."""
        capacity = max(0, self._most_bytes[what] - self._bytes[rank, attempt, what])
        self._bytes[rank, attempt, what] += size
        return min(capacity, size)

    def is_new_kill(self) -> bool:
        """Whether memory ran out and something was killed that nobody has asked about yet."""
        if _oom_kills() <= self._killed:
            return False
        self._killed += 1
        return True

    def report_worker(self, worker: Worker) -> None:
        """Report how much of a worker's was dropped, if that is more than was reported before."""
        rank, attempt = worker.rank, worker.attempt
        excess = {(what, most): self._bytes[rank, attempt, what] - most for what, most in self._most_bytes.items()}
        exceeded = {limit: size for limit, size in excess.items() if size > 0}
        if worker.trace is not None and worker.trace.exceeded is not None:
            exceeded.setdefault(worker.trace.exceeded, 0)
        for (what, most), size in exceeded.items():
            if self._reported.get((rank, attempt, what), -1) < size:
                self._reported[rank, attempt, what] = size
                self.report(what, most, size, rank, attempt)

    def report_node(self) -> None:
        """Report what the kernel refused to processes of the run, and what it killed besides workers."""
        refused, killed = _forks_refused() - self._refused, _oom_kills() - self._killed
        if refused > 0:
            self.report("processes", _read_cgroup("pids.max", "pids/pids.max"), refused)
        if killed > 0:
            self.report("memory", _read_cgroup("memory.max", "memory/memory.limit_in_bytes"), killed)

    def report(self, what: str, limit: int, excess: int, rank: int | None = None, attempt: str = "") -> None:
        """Report a limit that was reached, see `Limited`."""
        rank = self._reached_by if rank is None else rank
        self._send(Limited(time.time(), rank=rank, what=what, limit=limit, excess=excess, attempt=attempt))

    def start(self, local_ranks: Collection[int]) -> None:
        """The first workers are about to run, all in all these; what is there now is not theirs."""
        folders = [folder for folder in self._folders if os.path.isdir(folder)]
        if self._config.strict:
            self._unfilled = {os.stat(folder).st_dev: folder for folder in folders}
        if self._config.disk_bytes:
            users = {self._users.worker(local_rank) for local_rank in local_ranks}
            self._disk = Disk(self._config.disk_bytes, folders, users, alone=self._users.are_separate)

    def enforce(self, workers: Collection[Worker], store: int | None, joined: Iterable[RankProcess]) -> None:
        """End what takes too much; `store` is the pid of one process that is spared."""
        files = [file for process in (*workers, *joined) for file in process.files]
        bound_held(files)
        if self._config.memory_bytes:
            limit_bytes = self._config.memory_bytes - sum(file.held_bytes for file in files)
            running = [worker for worker in workers if worker.is_running]
            worker, held, pids = what_to_kill(limit_bytes, running, store)
            if worker is not None:
                worker.out_of_memory, worker.memory_bytes = True, held
                worker.await_stack()
            processes.kill_processes(pids)
        written = None if self._disk is None else self._disk.excess()
        if self._disk is not None and written is not None:
            self._free_disk(self._disk, written, workers, store)
        self.report_full()

    def report_full(self, *, now: bool = False) -> None:
        """Report places that are full, at times or `now`; the kernel refuses whoever would write more there."""
        if not now and time.monotonic() < self._unfilled_due:
            return
        self._unfilled_due = time.monotonic() + _PAUSE_S
        for device, folder in list(self._unfilled.items()):
            facts = os.statvfs(folder)
            if facts.f_blocks and (not facts.f_bavail or (facts.f_files and not facts.f_favail)):
                del self._unfilled[device]
                self.report(f"{FILES_IN}{folder}", facts.f_blocks * facts.f_frsize, 1)

    def _free_disk(self, disk: Disk, written: Mapping[int, int], workers: Iterable[Worker], store: int | None) -> None:
        """End the workers of the user who wrote the most, or all where nobody can be told."""
        uid, size = max(written.items(), key=lambda one: one[1], default=(None, 0))
        guilty = [w for w in workers if uid in (None, self._users.worker(w.local_rank).uid)]
        ranks = [one for one in guilty if one.rank >= 0]
        rank, attempt = (ranks[0].rank, ranks[0].attempt) if len(ranks) == 1 else (None, "")
        self.report("disk", disk.limit_bytes, size, rank, attempt)
        for worker in guilty:
            user = self._users.worker(worker.local_rank)
            if worker.is_running:
                worker.await_stack()
                processes.kill_processes([worker.pid, *processes.list_descendants(worker.pid)])
            if self._users.are_separate:
                processes.kill_user_processes(*user)
            disk.forgive(user.uid)
        if not self._users.are_separate:  # what has outlived its worker is below the agent
            processes.kill_processes(set(processes.list_descendants(os.getpid())) - {store})


def what_to_kill(limit_bytes: int, running: Iterable[Worker], keep: int | None) -> tuple[Worker | None, int, set[int]]:
    """What the kernel would kill in a container whose limit is reached: what holds the most, how much, and all of it.

    That is a worker with everything that it started, or what has outlived its worker; nothing below the limit.
    """
    sizes = processes.sizes_over(limit_bytes, processes.list_descendants(os.getpid()))
    if not sizes:
        return None, 0, set()
    trees: list[tuple[Worker, set[int]]] = []
    for one in sorted(running, key=lambda worker: worker.rank == STARTER):  # below which its workers are
        tree = {one.pid, *processes.list_descendants(one.pid)}
        trees.append((one, tree.difference(*(other for _, other in trees))))
    outlived = sizes.keys() - {keep}.union(*(tree for _, tree in trees))
    candidates: list[tuple[Worker | None, set[int]]] = [*trees, (None, outlived)]
    held = [sum(sizes.get(pid, 0) for pid in pids) for _, pids in candidates]
    largest = held.index(max(held))
    return candidates[largest][0], held[largest], candidates[largest][1]


def _oom_kills() -> int:
    """How often the kernel has killed something in this cgroup because memory ran out; 0 where it does not say."""
    return _read_cgroup("memory.events", "memory/memory.oom_control", key="oom_kill")


def _forks_refused() -> int:
    """How often something in this cgroup could not start a process or thread because of its limit."""
    return _read_cgroup("pids.events", "pids/pids.events", key="max")


def _read_cgroup(*names: str, key: str = "") -> int:
    """The number in the first of these files that there is, in the line that begins with `key`; 0: it has none."""
    lines = processes.read_words(*(f"/sys/fs/cgroup/{name}" for name in names))
    numbers = (words[-1] for words in lines if words[:-1] == ([key] if key else []))
    return next((int(number) for number in numbers if number.isdigit()), 0)


_PAUSE_S = 0.25
_PART_OF_THE_TIME = 20
"""Looking through folders takes no more than one part of so many."""
_MOST_FILES = 1_000_000
"""So many are looked at; who makes more has made few large ones."""
_NEARLY_FULL_BYTES = 1 << 30
_CLOCK_OF_FILES = 5  # CLOCK_REALTIME_COARSE: what file systems take times from


class Disk:
    """What was written since a moment, the one at which this was made.

    As long as the file systems have not lost more than the limit nothing is looked at but their free space.

    Args:
        limit_bytes: what all users together may write.
        folders: where the run can write.
        users: whose files count.
        alone: whether all processes of these users are of the run.
    """

    def __init__(self, limit_bytes: int, folders: Iterable[str], users: Iterable[User], *, alone: bool) -> None:
        self.limit_bytes = limit_bytes
        self._folders = tuple(folder for folder in folders if not folder.startswith("/dev/"))  # those are in memory
        self._users = frozenset(users)
        self._alone = alone
        self._began = time.clock_gettime(_CLOCK_OF_FILES)
        self._free = {folder: _free_bytes(folder) for folder in self._folders}
        self._next = 0.0

    def excess(self) -> Mapping[int, int] | None:
        """What each user wrote, where that is more than the limit; empty where it cannot be told who; None: no excess.

        Nobody can be told where files have no name any more and their processes hide them; then there is an excess only
        if the disk is nearly full.
        """
        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + _PAUSE_S
        free = {folder: _free_bytes(folder) for folder in self._folders}
        if all(self._free[folder] - left <= self.limit_bytes for folder, left in free.items()):
            return None
        written = self._written()
        if self._alone and sum(written.values()) <= self.limit_bytes:
            devices = {os.lstat(folder).st_dev for folder in self._folders}
            for user in self._users:
                nameless = processes.run_as(*user, partial(_nameless_bytes, user.uid, devices))
                written[user.uid] = written.get(user.uid, 0) + int(nameless or 0)
        took = time.monotonic() - now
        self._next = now + max(_PAUSE_S, took * _PART_OF_THE_TIME)
        if sum(written.values()) > self.limit_bytes:
            return written
        return {} if min(free.values()) < _NEARLY_FULL_BYTES else None

    def forgive(self, uid: int) -> None:
        """From now on leave out what a user wrote: its processes have been ended."""
        self._users = frozenset(user for user in self._users if user.uid != uid)

    def _written(self) -> dict[int, int]:
        written: Counter[int] = Counter()
        uids = {user.uid for user in self._users}
        visited: set[tuple[int, int]] = set()
        for facts in islice(_everything_in(self._folders), _MOST_FILES):
            if facts.st_uid not in uids or facts.st_ctime < self._began or not stat.S_ISREG(facts.st_mode):
                continue
            identity = facts.st_dev, facts.st_ino
            if facts.st_nlink == 1 or identity not in visited:
                written[facts.st_uid] += facts.st_blocks * 512
            if facts.st_nlink > 1:
                visited.add(identity)
        return dict(written)


def _free_bytes(folder: str) -> int:
    facts = os.statvfs(folder)
    return facts.f_bfree * facts.f_frsize


def _everything_in(folders: Iterable[str]) -> Iterator[os.stat_result]:
    """What is in folders and below them, each folder once; links are not followed."""
    visited: set[tuple[int, int]] = set()

    def is_new(_: str, facts: os.stat_result) -> bool:
        identity = facts.st_dev, facts.st_ino
        if identity in visited:
            return False
        visited.add(identity)
        return True

    for folder in folders:
        with suppress(OSError):  # gone meanwhile
            if is_new(folder, os.lstat(folder)):
                yield from (facts for _, facts in walk_tree(folder, is_new))


def _nameless_bytes(uid: int, devices: Collection[int]) -> int:
    """What the processes of this user have open that has no name any more; only the user may look."""
    sizes: dict[tuple[int, int], int] = {}
    for entry in os.listdir("/proc"):
        try:
            if not entry.isdigit() or os.stat(f"/proc/{entry}").st_uid != uid:
                continue
            with os.scandir(f"/proc/{entry}/fd") as descriptors:
                for descriptor in descriptors:
                    facts = os.stat(descriptor.path)
                    if stat.S_ISREG(facts.st_mode) and not facts.st_nlink and facts.st_dev in devices:
                        sizes[facts.st_dev, facts.st_ino] = facts.st_blocks * 512
        except OSError:  # it ended, or nobody may look into it
            continue
    return sum(sizes.values())
