"""Limits that a run reaches in its node, and what no kernel looks after: local memory, the disk, traces that wait."""

from __future__ import annotations

import os
import stat
import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress

from . import processes, trace_file
from .config import Config
from .messages.agent import CHECK, FILES_IN, STARTER, Claim, Limited
from .rank_process import Worker
from .users import User, Users


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
    sizes = processes.sizes_over(limit_bytes, processes.descendants(os.getpid()))
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
                written[user.uid] = written.get(user.uid, 0) + _nameless_bytes(user, devices)
        took = time.monotonic() - now
        self._next = now + max(_PAUSE_S, took * _PART_OF_THE_TIME)
        if sum(written.values()) > self.limit_bytes:
            return written
        return {} if min(free.values()) < _NEARLY_FULL_BYTES else None

    def forgive(self, uid: int) -> None:
        """From now on leave out what a user wrote: its processes have been ended."""
        self._users = frozenset(user for user in self._users if user.uid != uid)

    def _written(self) -> dict[int, int]:
        written: dict[int, int] = {}
        uids = {user.uid for user in self._users}
        seen: set[tuple[int, int]] = set()
        for number, facts in enumerate(_everything_in(self._folders)):
            if number > _MOST_FILES:
                break
            if facts.st_uid not in uids or facts.st_ctime < self._began or not stat.S_ISREG(facts.st_mode):
                continue
            if facts.st_nlink > 1:
                if (facts.st_dev, facts.st_ino) in seen:
                    continue
                seen.add((facts.st_dev, facts.st_ino))
            written[facts.st_uid] = written.get(facts.st_uid, 0) + facts.st_blocks * 512
        return written


def _free_bytes(folder: str) -> int:
    facts = os.statvfs(folder)
    return facts.f_bfree * facts.f_frsize


def _everything_in(folders: Iterable[str]) -> Iterator[os.stat_result]:
    """What is in folders and below them, each folder once; links are not followed."""
    waiting, seen = list(folders), set()
    while waiting:
        folder = waiting.pop()
        try:
            facts = os.lstat(folder)
            if (facts.st_dev, facts.st_ino) in seen:
                continue
            seen.add((facts.st_dev, facts.st_ino))
            with os.scandir(folder) as entries:
                for entry in entries:
                    facts = entry.stat(follow_symlinks=False)
                    yield facts
                    if stat.S_ISDIR(facts.st_mode):
                        waiting.append(entry.path)
        except OSError:  # gone meanwhile, or too deep for a path
            continue


def _nameless_bytes(user: User, devices: Collection[int]) -> int:
    """What the processes of a user have open that has no name any more; asked as that user, who alone may look."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
    except OSError:  # they leave no room for another process
        pid = -1
    if pid == 0:
        try:
            processes.become(*user)
            os.write(writer, struct.pack("Q", _nameless_open(user.uid, devices)))
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        data = answer.read()
    if pid > 0:
        os.waitpid(pid, 0)
    return struct.unpack("Q", data)[0] if len(data) == 8 else 0


def _nameless_open(uid: int, devices: Collection[int]) -> int:
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


class Places:
    """File systems with a limit of their own in which a run can write, and which of them it has filled.

    Args:
        folders: where the run can write.
    """

    def __init__(self, folders: Iterable[str]) -> None:
        self._folders = {os.stat(folder).st_dev: folder for folder in folders}
        self._next = 0.0

    def filled(self, *, now: bool = False) -> Iterator[tuple[str, int]]:
        """Each that has no room any more, told once: a folder in it and its size; four times a second, or `now`."""
        if not now and time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _PAUSE_S
        for device, folder in list(self._folders.items()):
            facts = os.statvfs(folder)
            if facts.f_blocks and (not facts.f_bavail or (facts.f_files and not facts.f_favail)):
                del self._folders[device]
                yield folder, facts.f_blocks * facts.f_frsize


class Watch:
    """Keeps a run within limits, and tells which it has reached.

    Args:
        config: of the node; it has the limits.
        told: takes what there is to tell.
        users: who the workers are.
        folders: where they can write, besides the folder that all nodes share.
    """

    def __init__(self, config: Config, told: Limits, users: Users, folders: Iterable[str]) -> None:
        self._config = config
        self._told = told
        self._users = users
        self._folders = tuple(folders)
        self._disk: Disk | None = None
        self._places: Places | None = None

    def begin(self, local_ranks: Collection[int]) -> None:
        """The first workers are about to run, all in all these; what is there now is not theirs."""
        folders = [folder for folder in (*self._folders, self._config.shared) if os.path.isdir(folder)]
        if self._config.tell_of_full:
            self._places = Places(folders)
        if self._config.disk_bytes:
            users = {self._users.worker(local_rank) for local_rank in local_ranks}
            self._disk = Disk(self._config.disk_bytes, folders, users, alone=self._users.many)

    def look(self, workers: Collection[Worker], keep: int | None, more: Collection[trace_file.TraceFile] = ()) -> None:
        """End what takes too much; `keep` is the pid of the store, `more` are traces of others than workers."""
        traces = [*(worker.trace for worker in workers if worker.trace is not None), *more]
        trace_file.bound_held(traces)
        if self._config.memory_bytes:
            self._look_at_memory(workers, keep, self._config.memory_bytes - sum(trace.held_bytes for trace in traces))
        if self._disk is not None:
            self._look_at_disk(self._disk, workers, keep)
        self.look_for_room()

    def look_for_room(self, *, now: bool = False) -> None:
        """Tell of places that are full; the kernel refuses whoever would write more there."""
        for folder, size in self._places.filled(now=now) if self._places is not None else ():
            self._told.say(f"{FILES_IN}{folder}", size, 1)

    def _look_at_memory(self, workers: Collection[Worker], keep: int | None, limit_bytes: int) -> None:
        """Do what the kernel does for a container."""
        running = [worker for worker in workers if worker.status is None]
        worker, held, pids = what_to_kill(limit_bytes, running, keep)
        if worker is not None:
            worker.out_of_memory, worker.memory_bytes = True, held
            worker.ask_for_stack()
        processes.kill(pids)

    def _look_at_disk(self, disk: Disk, workers: Collection[Worker], keep: int | None) -> None:
        written = disk.excess()
        if written is None:
            return
        uid, size = max(written.items(), key=lambda one: one[1], default=(None, 0))
        guilty = [w for w in workers if uid in (None, self._users.worker(w.local_rank).uid)]
        ranks = [one for one in guilty if one.rank >= 0]
        rank, attempt = (ranks[0].rank, ranks[0].attempt) if len(ranks) == 1 else (None, "")
        self._told.say("disk", disk.limit_bytes, size, rank, attempt)
        for worker in guilty:
            user = self._users.worker(worker.local_rank)
            if worker.status is None:
                worker.ask_for_stack()
                processes.kill([worker.pid, *processes.descendants(worker.pid)])
            if self._users.many:
                processes.kill_all_of(*user)
            disk.forgive(user.uid)
        if not self._users.many:  # what has outlived its worker is below the agent
            processes.kill(set(processes.descendants(os.getpid())) - {keep})
