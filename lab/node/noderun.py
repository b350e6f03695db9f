"""One run on one node: its folders, its workers, their statements, and the cleanup."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import time
import traceback
from collections.abc import Callable
from itertools import islice
from typing import Any

from . import channels, launch, launched, leftovers, limits, outputs, processes, run_folders, store, tcp, users, warm
from .joined_processes import JoinedProcesses
from .kept_folders import KeptFolders
from .messages import agent as messages
from .messages import wire
from .messages.agent import STARTER, Config, WorkerStart
from .messages.wire import Connection, Sender
from .rank import check, joining
from .rank_process import RankProcess, Worker
from .statement import SOCKET_VARIABLE, Datagram, receive_statements

_PATIENCE_S = 0.05  # after this, all processes of a run's users are killed at once
_UNWATCHED_S, _FOLLOWED_S, _STEPPED_S = 1.0, 0.1, 0.03
_KILL_DEADLINE_S = 120.0  # thousands of processes take seconds to end
_READ_BYTES = 1 << 16


class NodeRun:
    """The state of the run that this node takes part in."""

    def __init__(
        self,
        claim: messages.Claim,
        config: Config,
        client: Connection,
        kept: KeptFolders,
        leftovers: leftovers.Leftovers | None = None,
    ) -> None:
        self.claim, self.config = claim, config
        self.run = claim.run
        self.send = Sender(claim.run, config.node, client)
        """Sends a message to the lab."""
        self.users = users.Users(claim, container=config.container)
        self._leftovers = leftovers
        """What the run leaves outside of its folders in a container; None: unknown."""
        if leftovers is not None:
            leftovers.begin_run(self.users.worker(0))
        self.folders = run_folders.RunFolders(claim.run, config.root, self.users, kept)
        self.workers: list[Worker] = []
        """In the order of their start, with starters and the check; for each local rank only the last one."""
        self._started = 0
        self._triggers: tuple[dict[str, Any], ...] = ()
        """Points at which ranks are held."""
        self.disk: dict[str, Any] = {}
        """Current faults of their writes, see `lab.features.faults.on_node.write_filter`."""
        self.spared: Callable[[], set[int]] = set
        """Returns processes of the agent that do not belong to the run."""
        self.store_pid: int | None = None
        self._going = self._ended = False
        self.uncleaned: list[str] = []
        """A phrase for each process that did not end and each path that could not be removed."""
        self.tcp = tcp.Reports(config, self.send)
        """Reports connections between the nodes."""
        self.imported: set[str] = set()
        """Slow parts of torch that a worker had to import."""
        writable = [self.folders.home, *(leftovers.folders if leftovers is not None else ())]
        self._limits = limits.Limits(claim, config, self.send, self.users, writable)
        self.joined_processes = JoinedProcesses(self.send, self._limits.count)
        self.traces_every_s = _UNWATCHED_S
        """Interval between transfers of traces."""
        self._step = False
        """Whether new workers are held before each recorded call."""
        self._stopping = False
        """Whether launchers may not add workers any more."""

    # -- before the start

    def prepare(self, asked: messages.Prepare) -> None:
        """Start the store, if this node hosts it, and every worker or starter, which waits at its gate.

        Raises:
            StoreError: the store cannot listen.
            NodeLacks: this node does not have the starter's program.
        """
        self._triggers = asked.triggers or self._triggers
        if asked.store is not None:
            self._end_store()  # from an earlier attempt
            self.store_pid = store.start_store(asked.store, self.users.store)
        for start in asked.starters:
            launch.check_starter(start)
            self._start_starter(start, asked.workers)
        workers = () if asked.starters else asked.workers
        for start in workers:
            self._forget_ended(start.local_rank)
            self._start(start, self.folders.folder)
        if self._going:
            self.go()

    def check(self, asked: messages.Check) -> None:
        """Start the scenario's own check of the results as one more worker, rank -1, in a fresh copy of the folder.

        No process of a script is left that could change what the check reads. The check gets copies of the regular
        files that the ranks left.

        Raises:
            RuntimeError: a process of the run does not end.
            OSError: there is no space left for what the check needs.
        """
        self._end_processes()
        if self.uncleaned:
            raise RuntimeError(f"an earlier run left behind {', '.join(self.uncleaned)}")
        if self.config.container:
            self._limits.report_full(now=True)
            self._limits.begin_check()
        left_out = self._stage_outputs()
        folder = self.folders.fresh_copy()
        argv = [asked.reference.partition(":")[0], asked.reference]
        env = {
            **asked.env,
            check.RESULTS_VARIABLE: self.folders.write_file("results.json", json.dumps(asked.results)),
            check.FOLDER_VARIABLE: self.folders.staged,
            check.LEFT_OUT_VARIABLE: self.folders.write_file("left_out.json", json.dumps(left_out)),
        }
        self._start(WorkerStart(-1, -1, env, argv, check.__file__), folder).open_gate()

    def _stage_outputs(self) -> dict[str, str]:
        """Copy what the ranks left for the check; report and return each path that is left out, with the reason."""
        owners = None
        if self.users.are_separate:
            owners = {self.users.worker(worker.local_rank).uid for worker in self.workers if worker.rank >= 0}
            owners.add(self.users.worker(0).uid)  # what was shipped
        most = outputs.STRICT if self.config.strict else outputs.USUAL
        copies = outputs.Staging(self.folders, owners, most, self.send.send_cleaning)
        copies.copy()
        if copies.left_out:
            first = dict(islice(copies.left_out.items(), messages.MOST_LEFT_OUT))
            self.send(messages.Staged(time.time(), first, omitted=len(copies.left_out) - len(first) + copies.omitted))
        return copies.left_out

    def _settings(self, folder: str) -> messages.WorkerSettings:
        claim, config = self.claim, self.config
        known = (folder, config.import_root, config.packages, claim.trace, claim.trace_values)
        return messages.WorkerSettings(*known, self._step, claim.cold)

    def _start(self, start: WorkerStart, folder: str) -> Worker:
        """Start a worker that waits at its gate."""
        own = "HOME" if self.config.container else "TMPDIR"
        note_socket, home = self.folders.note_socket(self._started), self.folders.make_home_path(folder)
        start.env.update({SOCKET_VARIABLE: note_socket, own: home})
        for name, value in self.users.variables(start.local_rank).items():
            start.env.setdefault(name, value)
        settings = self._settings(folder)._replace(step=self._step and start.rank >= 0)
        worker = launch.start_worker(channels.add_triggers(start, self._triggers), settings, self.users, self.config)
        self._started += 1
        self.workers.append(worker)
        return worker

    def _start_starter(self, start: WorkerStart, workers: tuple[WorkerStart, ...]) -> None:
        """Start a process of a launcher, whose children become workers."""
        folder, home = self.folders.folder, self.folders.home
        before = start.env.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        own = joining.make_environment(folder, self.claim.trace_values, before)
        start.env["PYTHONPATH"], own = own["PYTHONPATH"], own if self.claim.trace else {"PYTHONPATH": before}
        known = (self._settings(folder), workers, self._triggers, self.folders.note_socket(self._started), home)
        text = json.dumps(wire.to_plain_data(messages.Launch(*known, own)))
        start.env[launched.VARIABLE] = self.folders.write_file(f"launch{self._started}.json", text)
        self._start(start, folder)

    def _adopt(self, starter: Worker, process: messages.Launched, datagram: Datagram) -> None:
        """Make a process of a starter a worker, after validation; a process that is refused ends."""
        running = [one for one in self.workers if one.rank >= 0 and one.is_running]
        known = any(one.rank == process.rank or one.local_rank == process.local_rank for one in running)
        parents = (processes.parent_of(datagram.pid), processes.parent_of(process.pid))
        sane = process.rank >= 0 <= process.local_rank and len(process.channels) == len(datagram.fds)
        sane = sane and starter.rank == STARTER and parents == (starter.pid, datagram.pid)
        if known or self._stopping or not sane:
            return
        ends = dict(zip(process.channels, datagram.fds))
        datagram.fds.clear()
        self._forget_ended(process.local_rank)
        start = WorkerStart(process.rank, process.local_rank, {}, [], attempt=process.attempt)
        start = channels.add_triggers(start, self._triggers)
        notes = socket.socket(fileno=ends.pop("notes"))
        self.workers.append(launch.wrap_worker(start, process.pid, notes, ends, self.users))
        self._open_gates()

    def _forget_ended(self, local_rank: int) -> None:
        """Remove the ended worker of an earlier attempt with this local rank."""
        for worker in [one for one in self.workers if one.local_rank == local_rank and not one.is_running]:
            self.read_all(worker)  # an orphan of it may have printed something
            worker.send_trace(self.send)
            self._limits.report_worker(worker)
            worker.close()
            self.workers.remove(worker)

    def go(self) -> None:
        """Open every worker's gate."""
        if not self._going:
            self.folders.shipped.await_tick()
            self._going = True
            self._limits.start({worker.local_rank for worker in self.workers})
        self._open_gates()

    def _open_gates(self) -> None:
        for worker in self.workers:
            if worker.open_gate():
                self.send(messages.Started(worker.rank, worker.started, pid=worker.pid, attempt=worker.attempt))

    # -- while it runs

    def register(self, selector: selectors.BaseSelector) -> None:
        """Have a selector wait until a worker writes something, or can read more input."""
        for worker in self.workers:
            status = [worker.ends["status"]] if "status" in worker.ends and worker.is_running else []
            for fd in (worker.notes.fileno(), *worker.streams, *status):
                selector.register(fd, selectors.EVENT_READ)
            if worker.input_channel.waiting is not None:
                selector.register(worker.input_channel.waiting, selectors.EVENT_WRITE)
        self.joined_processes.register(selector)

    def pass_on(self, ready: set[int]) -> None:
        """Pass on output and input on those descriptors that are ready."""
        for worker in list(self.workers):
            if worker.notes.fileno() in ready:
                self.read_notes(worker)
            for fd in [fd for fd in worker.streams if fd in ready]:
                self._read_stream(worker, fd)
            if worker.input_channel.waiting in ready:
                self._report_delivered(worker.rank, *worker.input_channel.flush())
        if self.joined_processes.detect_ends(ready):
            for worker in self.workers:  # their last statements
                self.read_notes(worker)
            self.joined_processes.report_ends()
        if any(worker.ends.get("status") in ready for worker in self.workers):
            self.reap()

    def _read_stream(self, worker: Worker, fd: int) -> int:
        try:
            chunk = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError:  # a pseudo-terminal that the worker has closed
            chunk = b""
        if not chunk:
            os.close(fd)
            del worker.streams[fd]
            return 0
        stream = worker.streams[fd]
        kept, rank, attempt = len(chunk), worker.rank, worker.attempt
        if stream != messages.ANSWERS:
            kept = self._limits.count(rank, attempt, "output", kept)
        if kept:
            self.send(messages.Output(self.run, rank, stream, time.time(), chunk[:kept], attempt))
        return len(chunk)

    def read_all(self, worker: Worker) -> None:
        """Send what is in a worker's pipes now; orphans may continue to fill them."""
        for fd in list(worker.streams):
            left = processes.readable_bytes(fd)
            while left > 0 and (size := self._read_stream(worker, fd)):
                left -= size

    def send_traces(self) -> bool:
        """Send complete lines of the recorders until the connection is congested; return whether lines are left."""
        left = any(worker.send_trace(self.send) for worker in self.workers)
        return left or any(self.joined_processes.send_trace(process) for process in self.joined_processes)

    def read_notes(self, worker: Worker) -> None:
        """Handle the statements of a worker and of processes that it started."""
        for datagram in receive_statements(worker.notes):
            statement: Any = datagram.statement
            if isinstance(statement, messages.Launched):
                self._adopt(worker, statement, datagram)
                continue
            if self.joined_processes.handle(worker.rank, datagram, worker.attempt) or statement.rank != worker.rank:
                continue
            if isinstance(statement, messages.Raised):  # a time in the future is forged, and would change the culprit
                worker.raised = statement._replace(time=min(statement.time, time.time()))
            elif isinstance(statement, messages.Imported):
                self.imported.update({*statement.names}.intersection(warm.missing_modules()))
            elif isinstance(statement, messages.Reached):
                self.send_traces()  # the fault may end this node
                self.send(statement._replace(attempt=worker.attempt))
            elif self._limits.count(worker.rank, worker.attempt, "notes", datagram.bytes) == datagram.bytes:
                self.send(statement._replace(attempt=worker.attempt))

    def reap(self) -> None:
        """Report every worker that has ended, after everything that it had printed."""
        for worker in [worker for worker in self.workers if worker.is_running]:
            for name in worker.poll_status():
                self.send(messages.Halted(worker.rank, time.time(), signal=name, attempt=worker.attempt))
            if worker.is_running:
                continue
            ended = time.time()
            self.read_notes(worker)
            self.read_all(worker)
            self._limits.report_worker(worker)
            unasked = os.WTERMSIG(worker.status) == signal.SIGKILL and not (worker.stopped or worker.killed_by_starter)
            self.send(worker.exited(ended, starved=unasked and self._limits.is_new_kill()))
            self.tcp.poll(ended=bool(worker.status) and not worker.stopped)

    def poll(self) -> None:
        """Enforce the limits that no kernel enforces, and report changes."""
        if self._going:
            self._limits.enforce(self.workers, self.store_pid, self.joined_processes)
            self.joined_processes.report_ends()
            self.tcp.poll()

    def follow(self, asked: messages.Follow) -> None:
        """Send traces more often, because a client watches the run."""
        self._step = asked.step
        self.traces_every_s = _STEPPED_S if asked.step else _FOLLOWED_S

    def release(self, asked: messages.Release) -> None:
        """Let held workers continue, after the actions that they have to take first."""
        for worker in self.workers:
            if asked.rank in (worker.rank, messages.EVERY_RANK) and worker.is_running:
                worker.write(asked.end, f"{asked.line}\n".encode())

    # -- where they are

    def _running(self) -> list[RankProcess]:
        """Return the processes that can write their stacks, without starters, which may be any program."""
        workers = [one for one in self.workers if one.is_running and one.rank != messages.STARTER]
        return [*(process for process in self.joined_processes if process.is_running), *workers]

    def request_stacks(self) -> None:
        """Have every running worker, and the ranks that scripts started, write its Python stack."""
        self.tcp.ask()
        for process in self._running():
            process.begin_stack()
            process.owes_stack = True

    def report_stacks(self) -> None:
        """Send the stacks."""
        self.tcp.report()
        loads = [(one, one.measure_load(), processes.read_used_s(one.pid)) for one in self._running()]
        for process, load, used_s in loads:
            if isinstance(process, Worker):
                process.await_stacks_of_forks({joined.pid for joined in self.joined_processes})
            text, attempt, process.owes_stack = process.stack, process.attempt, False
            self.send(messages.Stack(process.rank, time.time(), text=text, load=load, used_s=used_s, attempt=attempt))

    # -- standard input of workers

    def write_input(self, request: messages.Input) -> None:
        """Write input to a worker."""
        channel = self.find_input_channel(request.rank)
        self._report_delivered(request.rank, *channel.write(request.data, last=request.last))

    def find_input_channel(self, rank: int) -> channels.InputChannel:
        """Return the input of the last worker with a rank, or one that is closed if there is none."""
        input_channels = (worker.input_channel for worker in reversed(self.workers) if worker.rank == rank)
        return next(input_channels, channels.InputChannel({}))

    def _report_delivered(self, rank: int, size: int, closed: bool) -> None:
        if size or closed:
            self.send(messages.InputDelivered(self.run, rank, size, closed))

    # -- its end

    def stop(self, number: int) -> None:
        """Send a signal to every running worker, and to the processes of its session."""
        self._stopping = True
        for process in self.joined_processes:
            process.stopped |= process.is_running
        for worker in self.workers:
            if worker.is_running:
                worker.stopped |= not worker.killed_by_starter  # in that case its starter has killed it
                processes.signal_session(worker.pid, number)

    def end(self) -> None:
        """End every process and send its last output; only the first call has an effect."""
        if not self._ended:
            self._ended = True
            self._try(self._end_processes)
            self._try(self._pass_on_last_words)

    def clean(self) -> None:
        """End all processes, and remove all files; continue after errors."""
        self._try(self.end)
        self._try(self._remove_files)

    def _try(self, step: Callable[[], object]) -> None:
        try:
            step()
        except Exception as error:
            traceback.print_exc()
            self.uncleaned.append(f"the rest of a failed cleanup ({type(error).__name__}: {error})")

    def outputs(self, asked: messages.Finish) -> outputs.Outputs:
        """Return the files that its processes made, which have ended."""
        of_ranks = sorted((one.rank, one.local_rank) for one in self.workers if one.rank >= 0)
        ranks = {self.users.worker(local_rank).uid: rank for rank, local_rank in reversed(of_ranks)}
        return outputs.Outputs(asked, self.folders, ranks, self.send.send_cleaning)

    def _end_processes(self) -> None:
        self.stop(signal.SIGKILL)
        keep = self.spared() | {worker.sidecar_pid for worker in self.workers}
        keep |= {worker.pid for worker in self.workers if worker.is_running} | {self.store_pid or 0}
        if self.workers and processes.kill_descendants(keep, _PATIENCE_S):
            for user in {self.users.worker(worker.local_rank) for worker in self.workers if self.users.are_separate}:
                processes.kill_user_processes(user.uid, user.gid)  # even those that fork too fast to be listed
        if self.workers and (pids := processes.kill_descendants(keep, _KILL_DEADLINE_S, self.send.send_cleaning)):
            self.uncleaned.append(f"{len(pids)} processes that do not end")
        deadline = time.monotonic() + 2.0
        while any(worker.is_running for worker in self.workers) and time.monotonic() < deadline:
            self.reap()
            time.sleep(0.0005)
        self.uncleaned += [f"rank {worker.rank}" for worker in self.workers if worker.is_running]
        self._end_store()

    def _end_store(self) -> None:
        if self.store_pid:
            os.kill(self.store_pid, signal.SIGKILL)
            os.waitpid(self.store_pid, 0)
            self.store_pid = None

    def _pass_on_last_words(self) -> None:
        """Send the last output and statements, after all processes of the run have died."""
        for worker in self.workers:
            self.read_all(worker)
            self.read_notes(worker)
        self.joined_processes.end()
        self.tcp.close()
        while self.send_traces():
            self.send.drain()
        for worker in self.workers:
            self._limits.report_worker(worker)
        if self.config.container and self.workers:
            self._limits.report_full(now=True)
            self._limits.report_node()

    def _remove_files(self) -> None:
        for worker in self.workers:
            worker.close()
        self.workers.clear()
        self.uncleaned += self.folders.remove(self.send.send_cleaning)
        if self._leftovers is not None:
            self.uncleaned += self._leftovers.remove(self.send.send_cleaning)
