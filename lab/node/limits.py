"""Limits of a run on its node. The agent enforces those that no kernel enforces: local memory, disk, unsent traces."""

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
from .kept_folders import CLOCK_OF_FILES
from .messages.agent import CHECK, FILES_IN, STARTER, Claim, Config, Filling, Limited, Message
from .rank_process import RankProcess, Worker
from .trace_file import LIMIT_BYTES, bound_held
from .users import User, Users


class Limits:
    """Keeps a run within limits, and reports those that it reaches: of a rank after its end, others after the run.

    Args:
        claim: has the limits of a rank.
        config: of the node; has the other limits.
        send: sends a report.
        users: the users of the workers.
        folders: folders that they can write to, besides the folder that all nodes share; the first has their files.
    """

    def __init__(
        self, claim: Claim, config: Config, send: Callable[[Message], None], users: Users, folders: Iterable[str]
    ) -> None:
        self._most_bytes = {"output": claim.output_bytes, "notes": config.notes_bytes, "trace": LIMIT_BYTES}
        """Limits by kind for a worker and the processes that it started; its own trace has a separate limit."""
        self._bytes: Counter[tuple[int, str, str]] = Counter()
        """Bytes by rank, attempt, and kind, dropped ones included."""
        self._config, self._send, self._users = config, send, users
        self._folders = (*folders, config.shared)
        self._disk: Disk | None = None
        self._outputs_bytes = claim.outputs_bytes
        self._outputs: Disk | None = None
        """Measures the files of the run until they reach that size."""
        self._unfilled: dict[int, str] = {}
        """File systems with their own limit that are not full yet: a folder in each, by its device."""
        self._unfilled_due = 0.0
        self._reported: dict[tuple[int, str, str], int] = {}
        self._killed, self._refused = _oom_kills(), _forks_refused()
        self._reached_by: int | None = None
        """Rank for limits of the node: None for its ranks, or the rank of the check."""

    def begin_check(self) -> None:
        """Report what the ranks reached, which have ended; the check of the scenario reaches all later limits."""
        self.report_node()
        self._killed, self._refused, self._reached_by = _oom_kills(), _forks_refused(), CHECK

    def count(self, rank: int, attempt: str, what: str, size: int) -> int:
        """Count bytes of a worker, or of a process that it started; return how many of them are within the limit."""
        capacity = max(0, self._most_bytes[what] - self._bytes[rank, attempt, what])
        self._bytes[rank, attempt, what] += size
        return min(capacity, size)

    def is_new_kill(self) -> bool:
        """Return whether the kernel killed something because memory ran out, each kill once."""
        if _oom_kills() <= self._killed:
            return False
        self._killed += 1
        return True

    def report_worker(self, worker: Worker) -> None:
        """Report dropped bytes of a worker if there are more than in the last report."""
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
        """Report requests of the run that the kernel refused, and killed processes other than workers."""
        refused, killed = _forks_refused() - self._refused, _oom_kills() - self._killed
        if refused > 0:
            self.report("processes", read_cgroup("pids.max", "pids/pids.max"), refused)
        if killed > 0:
            self.report("memory", read_cgroup("memory.max", "memory/memory.limit_in_bytes"), killed)

    def report(self, what: str, limit: int, excess: int, rank: int | None = None, attempt: str = "") -> None:
        """Report a reached limit, see `Limited`."""
        rank = self._reached_by if rank is None else rank
        self._send(Limited(time.time(), rank=rank, what=what, limit=limit, excess=excess, attempt=attempt))

    def start(self, local_ranks: Collection[int]) -> None:
        """Start to measure the disk before the first workers run; existing files are not theirs."""
        folders = [folder for folder in self._folders if os.path.isdir(folder)]
        if self._config.strict:
            self._unfilled = {os.stat(folder).st_dev: folder for folder in folders}
        users = {self._users.worker(local_rank) for local_rank in local_ranks}
        if self._outputs_bytes:
            self._outputs = Disk(self._outputs_bytes, folders[:1], users, alone=False)
        if self._config.disk_bytes:
            self._disk = Disk(self._config.disk_bytes, folders, users, alone=self._users.are_separate)

    def enforce(self, workers: Collection[Worker], store: int | None, joined: Iterable[RankProcess]) -> None:
        """End processes that exceed a limit; `store` is the pid of one process to spare."""
        files = [file for process in (*workers, *joined) for file in process.files]
        bound_held(files)
        if self._config.memory_bytes:
            limit_bytes = self._config.memory_bytes - sum(file.held_bytes for file in files)
            worker, held, pids = what_to_kill(limit_bytes, [worker for worker in workers if worker.is_running], store)
            if worker is not None:
                worker.out_of_memory, worker.memory_bytes = True, held
                worker.await_stack()
            processes.kill_processes(pids)
        written = None if self._disk is None else self._disk.excess()
        if self._disk is not None and written is not None:
            self._free_disk(self._disk, written, workers, store)
        if self._outputs is not None and (made := self._outputs.excess()):
            self._outputs = None
            self._send(Filling("", sum(made.values())))
        self.report_full()

    def report_full(self, *, now: bool = False) -> None:
        """Report full file systems, at intervals or `now`; the kernel refuses further writes to them."""
        if not now and time.monotonic() < self._unfilled_due:
            return
        self._unfilled_due = time.monotonic() + _PAUSE_S
        for device, folder in list(self._unfilled.items()):
            facts = os.statvfs(folder)
            if facts.f_blocks and (not facts.f_bavail or (facts.f_files and not facts.f_favail)):
                del self._unfilled[device]
                self.report(f"{FILES_IN}{folder}", facts.f_blocks * facts.f_frsize, 1)

    def _free_disk(self, disk: Disk, written: Mapping[int, int], workers: Iterable[Worker], store: int | None) -> None:
        """End the workers of the user who wrote the most, or all workers if the user is unknown."""
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
        if not self._users.are_separate:  # orphans of workers are descendants of the agent
            processes.kill_processes(set(processes.list_descendants(os.getpid())) - {store})


def what_to_kill(limit_bytes: int, running: Iterable[Worker], keep: int | None) -> tuple[Worker | None, int, set[int]]:
    """Return what the kernel would kill in a container at this limit: the largest worker, its memory, and its pids.

    That is a worker with all its descendants, or orphans (None for the worker). Below the limit there are no pids.
    """
    if not (sizes := processes.sizes_over(limit_bytes, processes.list_descendants(os.getpid()))):
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
    """Return how often the kernel has killed a process of this cgroup because memory ran out; 0 if unknown."""
    return read_cgroup("memory.events", "memory/memory.oom_control", key="oom_kill")


def _forks_refused() -> int:
    """Return how often the limit of this cgroup has refused a process or thread."""
    return read_cgroup("pids.events", "pids/pids.events", key="max")


def read_cgroup(*names: str, key: str = "") -> int:
    """Return the number in the first existing file, in the line that begins with `key`; 0 without one."""
    lines = processes.read_words(*(f"/sys/fs/cgroup/{name}" for name in names))
    numbers = (words[-1] for words in lines if words[:-1] == ([key] if key else []))
    return next((int(number) for number in numbers if number.isdigit()), 0)


_MOST_SHARED_FILES = 4096
"""More files in the shared folder than that are not counted: it takes 20 ms, and they are mostly small."""


def refuse_full_shared_folder(config: Config) -> None:
    """Refuse a run if earlier ones have filled the folder that all nodes share, which only --fresh empties.

    Raises:
        OSError: its files exceed the limit of one run.
    """
    if config.disk_bytes:
        files = islice(_everything_in([config.shared]), _MOST_SHARED_FILES)
        size = sum(facts.st_blocks * 512 for facts in files if stat.S_ISREG(facts.st_mode))
        if size > config.disk_bytes:
            raise OSError(
                f"{config.shared} holds {size:,} bytes of earlier runs; allowed: {config.disk_bytes:,}; "
                "`lab run --fresh` empties it"
            )


_PAUSE_S = 0.25
_PART_OF_THE_TIME = 20
"""Scanning folders may use one part of so many of the time."""
_MOST_FILES = 1_000_000
"""Limit for the scanned files; more files than that are mostly small."""
_NEARLY_FULL_BYTES = 1 << 30


class Disk:
    """Bytes written since this was made.

    While the free space of the file systems has shrunk by less than the limit, nothing else is measured.

    Args:
        limit_bytes: limit for all users together.
        folders: folders that the run can write to.
        users: users whose files count.
        alone: whether all processes of these users belong to the run.
    """

    def __init__(self, limit_bytes: int, folders: Iterable[str], users: Iterable[User], *, alone: bool) -> None:
        self.limit_bytes = limit_bytes
        self._folders = tuple(folder for folder in folders if not folder.startswith("/dev/"))  # those are in memory
        self._users = frozenset(users)
        self._alone = alone
        self._began = time.clock_gettime(CLOCK_OF_FILES)
        self._free = {folder: _free_bytes(folder) for folder in self._folders}
        self._next = 0.0

    def excess(self) -> Mapping[int, int] | None:
        """Return bytes by user where they exceed the limit; empty if the users are unknown; None if there is no excess.

        The users are unknown where files have no name any more and their processes hide them. Then only a nearly full
        disk is an excess.
        """
        if (now := time.monotonic()) < self._next:
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
        self._next = now + max(_PAUSE_S, (time.monotonic() - now) * _PART_OF_THE_TIME)
        if sum(written.values()) > self.limit_bytes:
            return written
        return {} if min(free.values()) < _NEARLY_FULL_BYTES else None

    def forgive(self, uid: int) -> None:
        """Ignore the files of a user from now on: its processes have been ended."""
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
    """Yield the status of everything in and below folders, each folder once; do not follow links."""
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
    """Return the bytes of open files without a name in processes of this user; only the user itself may read them."""
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
        except OSError:  # it ended, or may not be read
            continue
    return sum(sizes.values())
