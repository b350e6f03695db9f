"""What no kernel looks after while a run goes on: memory on the local engine, the disk, and traces that wait."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

from . import limits, processes, trace_file
from .config import Config
from .disk import Disk, Places
from .messages.agent import FILES_IN
from .rank_process import Worker
from .users import Users


class Watch:
    """Keeps a run within limits, and tells which it has reached.

    Args:
        config: of the node; it has the limits.
        told: takes what there is to tell.
        users: who the workers are.
        folders: where they can write, besides the folder that all nodes share.
    """

    def __init__(self, config: Config, told: limits.Limits, users: Users, folders: Iterable[str]) -> None:
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
        worker, held, pids = limits.what_to_kill(limit_bytes, running, keep)
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
