"""One run on one node: its folder, its workers, what they say, and that nothing of it remains."""

from __future__ import annotations

import json
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterable

from . import (
    check,
    hearing,
    launch,
    limits,
    messages,
    note,
    outputs,
    processes,
    remove,
    store,
    strays,
    users,
    wire,
    workplace,
)
from .config import Config
from .watch import Watch
from .watched import Watched

_PATIENCE_S = 0.05  # then the processes of a run are ended by their users, all at once
_KILL_DEADLINE_S = 120.0  # thousands of processes take seconds to end
Emit = Callable[[wire.Message], None]


class NodeRun:
    """The state of the run that this node takes part in."""

    def __init__(self, claim: messages.Claim, config: Config, emit: Emit, left: strays.Strays | None = None) -> None:
        self.claim = claim
        self.config = config
        self.run = claim.run
        self.emit = emit
        """Sends a message to the lab."""
        self.users = users.Users(claim, container=config.container)
        self._strays = left
        """What it leaves elsewhere in its container; None where that cannot be told."""
        if left is not None:
            left.remember(self.users.worker(0))
        self.place = workplace.Workplace(config.root, self.users)
        self.workers: dict[int, launch.Worker] = {}
        self.store_pid: int | None = None
        self.going = self._ended = False
        self.left: list[str] = []
        """What could not be ended or removed, a phrase each."""
        self._limits = limits.Limits(claim, config.node, self._tell)
        self.heard = hearing.Hearing(self.run, config.node, self.workers, self._limits, self._tell)
        writable = [self.place.home, *(left.folders if left is not None else ())]
        self._watch = Watch(config, self._limits, self.users, writable)
        self._told = 0.0
        self.watched = Watched()

    def _tell(self, message: wire.Message) -> None:
        self.emit(message)

    # -- before the start

    def prepare(self, workers: Iterable[messages.WorkerStart], hosted: messages.Store | None = None) -> None:
        """Start the store, if it is this node's, and every worker, waiting at its gate.

        Raises:
            StoreError: the store cannot listen.
        """
        if hosted is not None:
            self.store_pid = store.start_store(hosted, self.users.store)
        for start in workers:
            self._start(start, self.place.folder)

    def check(self, asked: messages.Check) -> None:
        """Start the scenario's own check of the results as one more worker, rank -1, in a fresh copy of the folder.

        Nothing that a script started is left by then to change what the check sees, and no link in the folder of the
        ranks by which it would take a file of its own for theirs.

        Raises:
            RuntimeError: a process of the run does not end.
        """
        self._end_processes()
        if self.left:
            raise RuntimeError(f"there are still {', '.join(self.left)}")
        remove.remove_links_out_of(self.place.folder)
        folder = self.place.fresh_copy()
        results = self.place.keep("results.json", json.dumps(asked.results))
        argv = [asked.reference.partition(":")[0], asked.reference]
        env = {**asked.env, check.RESULTS_VARIABLE: results, check.FOLDER_VARIABLE: self.place.folder}
        self._start(messages.WorkerStart(-1, -1, env, argv, check.__file__), folder)
        self.workers[-1].open_gate()

    def _start(self, start: messages.WorkerStart, folder: str) -> None:
        """Start a worker that waits at its gate."""
        own = "HOME" if self.config.container else "TMPDIR"
        note_socket = self.place.note_socket(start.rank)
        start.env.update({note.SOCKET_VARIABLE: note_socket, own: self.place.home_beside(folder)})
        for name, value in self.users.variables(start.local_rank).items():
            start.env.setdefault(name, value)
        root, step = self.config.import_root, self.watched.step and start.rank >= 0
        context = launch.LaunchContext(self.claim, self.users, folder, note_socket, root, step)
        self.workers[start.rank] = launch.start_worker(start, context)

    def go(self) -> None:
        """Open every worker's gate."""
        self.going = True
        self._watch.begin(self.workers.values())
        for worker in self.workers.values():
            worker.open_gate()
            self.emit(messages.Started(worker.rank, worker.started, self.config.node, self.run, worker.pid))

    # -- while it runs

    def reap(self) -> None:
        """Report every worker that has ended, after everything that it had printed."""
        for worker in self.workers.values():
            if worker.status is not None:
                continue
            halts, worker.status = worker.look()
            for name in halts:
                self.emit(messages.Halted(worker.rank, time.time(), self.config.node, self.run, name))
            if worker.status is None:
                continue
            ended = time.time()
            self.heard.read_notes(worker)
            self.heard.read_all(worker)
            worker.read_stack()
            self._limits.tell(worker)
            unasked_kill = os.WIFSIGNALED(worker.status) and os.WTERMSIG(worker.status) == signal.SIGKILL
            starved = unasked_kill and not worker.stopped and self._limits.killed_by_kernel()
            self.emit(worker.exited(ended, self.config.node, self.run, starved=starved))

    def look(self) -> None:
        """Keep it within those of its limits that no kernel looks after."""
        if self.going:
            self._watch.look(self.workers.values(), self.store_pid)

    @property
    def running(self) -> bool:
        """Whether a worker has not ended."""
        return any(worker.status is None for worker in self.workers.values())

    # -- its end

    def stop(self, number: int) -> None:
        """Send a signal to every worker that still runs, and to the processes of its session."""
        for worker in self.workers.values():
            if worker.status is None:
                worker.stopped = True
                try:
                    os.killpg(worker.pid, number)
                except ProcessLookupError:
                    worker.signal(number)

    def request_stacks(self) -> None:
        """Have every running worker write its Python stack."""
        for worker in self.workers.values():
            worker.begin_stack()

    def report_stacks(self) -> None:
        """Send what the workers wrote."""
        for worker in self.workers.values():
            worker.read_stack()
            if worker.status is None:
                worker.read_stacks_of_forks()
                text = worker.stack.decode("utf-8", "replace")
                self.emit(messages.Stack(worker.rank, time.time(), self.config.node, self.run, text))

    def end(self, congested: Callable[[], bool] = lambda: False, drain: Callable[[], None] = lambda: None) -> None:
        """End every process and pass on their last words; only the first time counts."""
        if not self._ended:
            self._ended = True
            self._each(self._end_processes, lambda: self._pass_on_last_words(congested, drain))

    def clean(self) -> None:
        """Leave nothing: end what runs, remove every file; what fails keeps no rest."""
        self._each(self.end, self._remove_files)

    def _each(self, *steps: Callable[[], object]) -> None:
        for step in steps:
            try:
                step()
            except Exception as error:
                traceback.print_exc()
                self.left.append(f"what its agent did not come to ({type(error).__name__}: {error})")

    def outputs(self, asked: messages.Finish) -> outputs.Outputs:
        """What its processes made, which have ended."""
        ranks = {self.users.worker(one.local_rank).uid: one.rank for one in reversed(self.workers.values())}
        return outputs.Outputs(asked, self.place, ranks)

    def _end_processes(self) -> None:
        self.stop(signal.SIGKILL)
        keep = {self.store_pid} if self.store_pid else set()
        keep.update(worker.pid for worker in self.workers.values() if worker.status is None)
        if self.workers and processes.kill_descendants(keep, _PATIENCE_S) and self.users.many:
            for user in {self.users.worker(worker.local_rank) for worker in self.workers.values()}:
                processes.kill_all_of(user.uid, user.gid)  # those included that fork faster than they are found
        if self.workers and (pids := processes.kill_descendants(keep, _KILL_DEADLINE_S, self._tell_of_cleaning)):
            self.left.append(f"{len(pids)} processes that do not end")
        deadline = time.monotonic() + 2.0
        while self.running and time.monotonic() < deadline:
            self.reap()
            time.sleep(0.0005)
        self.left += [f"rank {worker.rank}" for worker in self.workers.values() if worker.status is None]
        if self.store_pid:
            os.kill(self.store_pid, signal.SIGKILL)
            os.waitpid(self.store_pid, 0)
            self.store_pid = None

    def _pass_on_last_words(self, congested: Callable[[], bool], drain: Callable[[], None]) -> None:
        for worker in self.workers.values():
            self.heard.read_all(worker)
        while self.heard.send_traces(congested):
            drain()
        for worker in self.workers.values():
            self._limits.tell(worker)
        if self.config.container and self.workers:
            self._watch.look_for_room(now=True)
            self._limits.tell_of_node()

    def _remove_files(self) -> None:
        for worker in self.workers.values():
            worker.close()
        self.workers.clear()
        self.left += self.place.remove(self._tell_of_cleaning)
        if self._strays is not None:
            self.left += self._strays.remove(self._tell_of_cleaning)

    def _tell_of_cleaning(self) -> None:
        """Say once a second that the agent is at it: whoever waits for the end of the run would give up."""
        now = time.monotonic()
        if now - self._told > 1.0:
            self._told = now
            self.emit(messages.Cleaning(self.run))
