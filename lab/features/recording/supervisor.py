"""Run a command as it is, have every Python below it load the recorder, and record those that join process groups."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.errors import LabError, RecordError
from lab.node.joined_processes import JoinedProcesses
from lab.node.messages.agent import MOST_OF_A_WORKER, Exited, Joined, Leaving, Note, Trace
from lab.node.messages.wire import Sender
from lab.node.processes import die_with_parent
from lab.node.rank_process import JoinedProcess
from lab.node.statement import bind_notes, receive_statements

if TYPE_CHECKING:
    from lab.features.recording.world import World
    from lab.record.result import Result

_FORWARDED = frozenset((signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2))
_FROM_TERMINAL = 128
"""SI_KERNEL, the code of a signal that the terminal sent: the command got it too."""
_POLL_S = 0.1
_LAST_S = 1.0
"""Time for ranks to end after the command, as those that mpiexec kills do."""
_KILLED_AFTER_S = 2.0
_SLACK_S = 0.3
"""An error that ended a rank's part in its world may be reported this long before the last sign of progress."""
_MOST_OPEN = 16
"""Worlds that are not judged although all their processes ended; the oldest is judged before the command ends."""
_ABSENT, _REFUSED = 127, 126
"""Exit codes of commands that do not exist, and of others that cannot start, as in shells."""


class _Messages(Sender):
    """Passes messages about processes to a function instead of sending them."""

    def __init__(self, handle: Callable[[Any], None]) -> None:
        super().__init__("", "", None)
        self._handle = handle

    def __call__(self, message: Any) -> None:
        """Pass on a message."""
        self._handle(message)


class Supervisor:
    """The command and its worlds.

    Args:
        name: name of its runs.
        runs: folder of all runs.
        folder: folder of the user's scripts.
        stall_s: seconds without progress after which waiting ranks are diagnosed; 0: never.
        report: called with the result of each world that stands still.
        stops: whether such ranks are ended.
    """

    def __init__(
        self, name: str, runs: Path, folder: Path, stall_s: float, report: Callable[[Result], None], stops: bool = False
    ) -> None:
        self.worlds: list[World] = []
        self.has_other = False
        """Whether a process below the command recorded worlds itself."""
        self.error: RecordError | None = None
        """Why recording ended before the command."""
        self._name, self._runs, self._folder = name, runs, folder
        self._stall_s, self._report, self._stops = stall_s, report, stops
        self._by_number: dict[int, tuple[World, int]] = {}
        """World and rank of each process."""
        self._processes = JoinedProcesses(_Messages(self._handle), lambda *facts: facts[-1])  # all they send counts

    def run(self, words: Sequence[str], values: int | None) -> int:
        """Run the command to its end; return its exit code, or the negative number of the signal that ended it.

        Args:
            words: the command.
            values: limit of recorded elements for each side of a call; None: the default.

        Raises:
            LabError: it cannot start.
        """
        from lab.features.recording.environment import install_package, recorded_environment, socket_path

        package = install_package()
        path = socket_path(package)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
        try:
            notes = bind_notes(str(path))
            kept = os.open(path, os.O_PATH)  # the socket has no name, so that nothing is left if this process is killed
            path.unlink()
            socket = Path(f"/proc/{os.getpid()}/fd/{kept}")
            environment = recorded_environment(package, self._folder, values, socket)
            command = self._start(words, environment, before)
            with notes:
                self._serve(command, notes)
            return command.wait()
        finally:
            for number in _FORWARDED:  # what came since must not end the verdict
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _start(self, words: Sequence[str], environment: Any, mask: Iterable[int]) -> subprocess.Popen[bytes]:
        parent = os.getpid()

        def prepare() -> None:
            """End the command if this process is killed, as if the command itself had been."""
            die_with_parent(parent)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        try:
            return subprocess.Popen(words, env=environment, close_fds=False, preexec_fn=prepare)  # noqa: PLW1509
        except OSError as error:
            hint = "`lab record -- torchrun {0}`, or `lab record -- python {0}`" if words[0].endswith(".py") else ""
            failure = LabError(f"cannot start {words[0]}: {error.strerror}", hint.format(words[0]))
            failure.exit_code = _ABSENT if isinstance(error, FileNotFoundError) else _REFUSED
            raise failure from error

    def _serve(self, command: subprocess.Popen[bytes], notes: Any) -> None:
        end = os.pidfd_open(command.pid)
        try:
            while end not in (ready := self._wait(end, notes)):
                from lab.features.recording.world import World  # noqa: F401 - takes as long as Python needs to start

                self._forward_signals(command)
                self._record(partial(self._poll, notes, ready))
                self._record(self._watch_stalls)
            until = time.monotonic() + _LAST_S
            ready = set[int]()
            for nth in count():  # twice at least: processes that joined, and those that ended
                self._record(partial(self._poll, notes, ready))
                running = any(one.is_running for one in self._processes)
                if nth and (time.monotonic() > until or not running):
                    break
                ready = self._wait(notes, at_most_s=_POLL_S if running else 0.0)
            self._record(partial(self._processes.report_ends, last=True))
        finally:
            os.close(end)

    def _record(self, step: Callable[[], object]) -> None:
        """Take a step; if the record cannot be written, continue without one, because the command must continue."""
        try:
            step()
        except RecordError as error:  # the disk is full, or the command removed the folder
            from lab.report.sanitize import sanitize_text

            self.worlds = [world for world in self.worlds if world.result is not None]
            if self.error is None:
                about = f"lab record: {error.message}; the command continues without a record\n  hint: {error.hint}\n"
                sys.stderr.write(sanitize_text(about))
            self.error = self.error or error

    def _wait(self, *descriptors: Any, at_most_s: float = _POLL_S) -> set[int]:
        """Wait until something happens, at most for a moment; return the descriptors that are ready."""
        with selectors.DefaultSelector() as selector:
            for one in descriptors:
                selector.register(one, selectors.EVENT_READ)
            self._processes.register(selector)
            return {key.fd for key, _ in selector.select(at_most_s)}

    def _poll(self, notes: Any, ready: set[int]) -> None:
        """Handle the statements, traces, and ends of processes."""
        self._read_statements(notes)
        if self._processes.detect_ends(ready):
            self._read_statements(notes)  # their last ones
        for process in self._processes:
            self._processes.send_trace(process)
        self._processes.report_ends()
        self._judge_early()

    def _judge_early(self) -> None:
        """Judge the oldest of many ended worlds, but few: meanwhile a short-lived process could be missed."""
        for world in [one for one in self.worlds if one.result is None and not one.is_running][:-_MOST_OPEN]:
            world.conclude()

    def _read_statements(self, notes: Any) -> None:
        for datagram in receive_statements(notes):
            self._processes.handle(len(self._by_number) // MOST_OF_A_WORKER, datagram)
            self.has_other |= isinstance(datagram.statement, Leaving) and datagram.statement.rank < 0

    def _forward_signals(self, command: subprocess.Popen[bytes]) -> None:
        while (info := signal.sigtimedwait(_FORWARDED, 0)) is not None:
            if info.si_code != _FROM_TERMINAL:
                command.send_signal(info.si_signo)

    def _handle(self, message: Any) -> None:
        """Handle a message about a process that joined."""
        if self.error is not None:
            return
        if isinstance(message, Joined):
            world = next((one for one in reversed(self.worlds) if one.accepts(message)), None)
            if world is None:
                from lab.features.recording.world import World

                world = World(self._runs, self._name, self._folder, message)
                self.worlds.append(world)
            world.add(message)
            self._by_number[message.rank] = world, message.claimed_rank
            return
        world, rank = self._by_number[message.rank]
        if isinstance(message, Trace):
            world.add_trace(rank, message.data)
        elif isinstance(message, Note):
            world.add_fact(message._replace(rank=rank))
        elif isinstance(message, Exited):
            world.add_exit(message._replace(rank=rank))

    # -- worlds that stand still

    def _watch_stalls(self) -> None:
        for world in self.worlds:
            if world.stopped_at:
                if time.monotonic() - world.stopped_at > _KILLED_AFTER_S:
                    world.stop(self._running(world).values(), signal.SIGKILL)
            elif self._stall_s and world.is_due(self._stall_s, partial(self._running, world)):
                failed, waiting = self._split_ranks(world, world.progressed - _SLACK_S)
                if (stalled := world.examine(waiting, self._stall_s, failed)) is not None:
                    self._report(stalled)
                    if self._stops and not world.is_patient:
                        world.stop(self._running(world).values(), signal.SIGTERM)

    def _split_ranks(self, world: World, since: float) -> tuple[list[Exited], dict[int, JoinedProcess]]:
        """Return errors that processes have had since a moment and outlive, as those of a pool, and the others."""
        since += time.time() - time.monotonic()
        failed, others = list[Exited](), dict[int, JoinedProcess]()
        for rank, process in self._running(world).items():
            if process.raised is not None and process.raised.time >= since:
                failed.append(process.describe_exit(process.raised.time, 1, 0)._replace(rank=rank))
            else:
                others[rank] = process
        return failed, others

    def _running(self, world: World) -> dict[int, JoinedProcess]:
        """Return the running processes of a world, by rank."""
        known = ((self._by_number.get(one.rank, (None, -1)), one) for one in self._processes if one.is_running)
        return {rank: process for (whose, rank), process in known if whose is world}

    def conclude(self) -> list[Result]:
        """Judge the worlds that are not judged yet; return the results of all, in the order in which they began."""
        for world in self.worlds:
            if world.result is None:
                self._record(world.conclude)
        return [world.result for world in self.worlds if world.result is not None]
