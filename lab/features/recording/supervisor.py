"""Run a command as it is, have every Python below it load the recorder, and record those that join process groups."""

from __future__ import annotations

import compileall
import ctypes
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.engine.payload import node_files
from lab.errors import LabError
from lab.frozen import Frozen
from lab.node.contents import new_digest
from lab.node.joined_processes import JoinedProcesses
from lab.node.limits import Limits
from lab.node.messages.agent import MOST_OF_A_WORKER, Exited, Joined, Leaving, Note, Trace
from lab.node.messages.wire import Sender
from lab.node.rank.joining import SETTINGS_VARIABLE, make_environment
from lab.node.rank_process import JoinedProcess
from lab.node.recorder.build import cache_folder
from lab.node.statement import SOCKET_VARIABLE, bind_notes, receive_statements

if TYPE_CHECKING:
    from lab.features.recording.world import World
    from lab.record.result import Result

_FORWARDED = frozenset((signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2))
_FROM_TERMINAL = 128
"""SI_KERNEL, the code of a signal that the terminal sent: the command got it too."""
_POLL_S = 0.1
_LAST_S = 1.0
"""Time for ranks to end after the command, as those that mpiexec kills do."""
_PR_SET_PDEATHSIG = 1
_MOST_OPEN = 16
"""Worlds that are not judged although all their processes ended; the oldest is judged before the command ends."""
_ABSENT, _REFUSED = 127, 126
"""Exit codes of commands that do not exist, and of others that cannot start, as in shells."""


class CommandFailed(LabError):
    """The command cannot start."""

    def __init__(self, word: str, error: OSError) -> None:
        hint = f"`lab record -- torchrun {word}`, or `lab record -- python {word}`" if word.endswith(".py") else ""
        super().__init__(f"cannot start {word}: {error.strerror}", hint)
        self.exit_code = _ABSENT if isinstance(error, FileNotFoundError) else _REFUSED


class Options(Frozen):
    """How to record a command."""

    runs: Path
    """Folder of all runs."""
    values: int | None = None
    """Limit of recorded elements for each side of a call; None: the default."""
    stall_s: float = 300.0
    """Seconds without progress after which waiting ranks are diagnosed; 0: never."""
    stops: bool = False
    """Whether such ranks are ended."""


class _Unlimited(Limits):
    """Limits that only the size of each trace has: the command's processes are the user's own."""

    def __init__(self) -> None:
        pass

    def count(self, rank: int, attempt: str, what: str, size: int) -> int:
        """Count nothing."""
        return size


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
        words: the command.
        name: name of its runs.
        options: how to record it.
        report: called with the result of each world that stands still.
    """

    def __init__(self, words: Sequence[str], name: str, options: Options, report: Callable[[Result], None]) -> None:
        self.worlds: list[World] = []
        self.has_other = False
        """Whether a process below the command recorded worlds itself."""
        self._words = words
        self._name = name
        self._options = options
        self._report = report
        self._folder = Path.cwd()
        self._by_number: dict[int, tuple[World, int]] = {}
        """World and rank of each process."""
        self._processes = JoinedProcesses(_Messages(self._handle), _Unlimited())

    def run(self) -> int:
        """Run the command to its end; return its exit code, or the negative number of the signal that ended it.

        Raises:
            CommandFailed: it cannot start.
            RecordError: a record cannot be written.
        """
        package = install_package()
        path = socket_path(package)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
        try:
            notes = bind_notes(str(path))
            kept = os.open(path, os.O_PATH)  # the socket has no name, so that nothing is left if this process is killed
            path.unlink()
            socket = Path(f"/proc/{os.getpid()}/fd/{kept}")
            environment = recorded_environment(package, self._folder, self._options.values, socket)
            command = self._start(environment, before)
            with notes:
                self._serve(command, notes)
            return command.wait()
        finally:
            path.unlink(missing_ok=True)
            for number in _FORWARDED:  # what came since must not end the verdict
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _start(self, environment: Any, mask: Iterable[int]) -> subprocess.Popen[bytes]:
        libc, parent = ctypes.CDLL(None), os.getpid()

        def prepare() -> None:
            """End the command if this process is killed, as if the command itself had been."""
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        try:
            return subprocess.Popen(self._words, env=environment, close_fds=False, preexec_fn=prepare)  # noqa: PLW1509
        except OSError as error:
            raise CommandFailed(self._words[0], error) from error

    def _serve(self, command: subprocess.Popen[bytes], notes: Any) -> None:
        end = os.pidfd_open(command.pid)
        try:
            while end not in (ready := self._wait(end, notes)):
                from lab.features.recording.world import World  # noqa: F401 - takes as long as Python needs to start

                self._forward_signals(command)
                self._poll(notes, ready)
                self._watch_stalls()
            until = time.monotonic() + _LAST_S
            for nth in count():  # twice at least: processes that joined, and those that ended
                self._poll(notes, self._wait(notes) if nth else set())
                if nth and (time.monotonic() > until or not any(one.is_running for one in self._processes)):
                    break
            self._processes.report_ends(last=True)
        finally:
            os.close(end)

    def _wait(self, *descriptors: Any) -> set[int]:
        """Wait until something happens, at most for a moment; return the descriptors that are ready."""
        with selectors.DefaultSelector() as selector:
            for one in descriptors:
                selector.register(one, selectors.EVENT_READ)
            self._processes.register(selector)
            return {key.fd for key, _ in selector.select(_POLL_S)}

    def _poll(self, notes: Any, ready: set[int]) -> None:
        """Handle the statements, traces, and ends of processes."""
        self._read_statements(notes)
        if self._processes.detect_ends(ready):
            self._read_statements(notes)  # their last ones
        for process in self._processes:
            self._processes.send_trace(process)
        self._processes.report_ends()
        self._judge_early([one for one in self.worlds if one.is_over and one.result is None])

    def _judge_early(self, ended: Sequence[World]) -> None:
        """Judge the oldest of many ended worlds, but few: meanwhile a short-lived process could be missed."""
        for world in ended[:-_MOST_OPEN]:
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
        if isinstance(message, Joined):
            world = next((one for one in reversed(self.worlds) if one.accepts(message)), None)
            if world is not None:
                world.add(message)
            else:
                from lab.features.recording.world import World

                world = World(self._options.runs, self._name, self._folder, message)
                self.worlds.append(world)
                self._judge_early([one for one in self.worlds if one.result is None and not one.is_running])
            self._by_number[message.rank] = world, message.claimed_rank
            return
        world, rank = self._by_number[message.rank]
        if isinstance(message, Trace):
            world.add_trace(rank, message.data)
        elif isinstance(message, Note):
            world.add_note(message._replace(rank=rank))
        elif isinstance(message, Exited):
            world.add_exit(message._replace(rank=rank))

    # -- worlds that stand still

    def _watch_stalls(self) -> None:
        for world in self.worlds:
            if world.was_stopped and world.is_running:
                world.stop(self._running(world).values())
            elif self._options.stall_s and world.is_due(self._options.stall_s, partial(self._running, world)):
                running = self._running(world)
                raised = {rank: one for rank, one in running.items() if world.failed_last(one)}
                parts = [one.describe_exit(time.time(), 1, 0)._replace(rank=rank) for rank, one in raised.items()]
                waiting = {rank: one for rank, one in running.items() if rank not in raised}
                if (stalled := world.examine(waiting, self._options.stall_s, parts)) is not None:
                    self._report(stalled)
                    if self._options.stops and not world.is_patient:
                        world.stop(self._running(world).values())

    def _running(self, world: World) -> dict[int, JoinedProcess]:
        """Return the running processes of a world, by rank."""
        known = ((self._by_number.get(one.rank, (None, -1)), one) for one in self._processes if one.is_running)
        return {rank: process for (whose, rank), process in known if whose is world}

    def conclude(self) -> list[Result]:
        """Judge the worlds that are not judged yet; return the results of all, in the order in which they began."""
        return [world.result or world.conclude() for world in self.worlds]


LONGEST_MESSAGE = 1 << 16
"""Bytes of a message between pytest and the process that records its tests."""
INTERRUPT, INTERRUPT_WAIT = signal.SIGRTMAX - 3, signal.SIGRTMAX - 4
"""Make the main thread of pytest end its test: at once, and only if it waits for another process."""
_STARTUP = Path("labnode", "node", "startup")
_LONGEST_PATH_BYTES = 100
"""Limit for the path of a socket; Linux allows 107."""


def install_package() -> Path:
    """Return a folder with the node's files for this version of the lab, and write it if it is new.

    It contains nothing but these files: a recorded process has it at the end of `sys.path`.

    Raises:
        OSError: it cannot be written.
    """
    files = node_files()
    name: str = new_digest(repr(sorted(files.items())).encode()).hexdigest()
    folder = Path(cache_folder()).parent / "recorded" / name
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            for path, content in files.items():
                target = Path(made, "package", path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            compileall.compile_dir(Path(made, "package"), ddir=str(folder), quiet=2)  # processes may write no bytecode
            try:
                Path(made, "package").rename(folder)
            except OSError:
                if not folder.is_dir():  # else another command was faster
                    raise
    return folder


def socket_path(package: Path) -> Path:
    """Return a new path for the socket of a command, and remove sockets that killed commands have left."""
    for left in package.parent.glob("*.socket"):
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            try:
                channel.connect(str(left))
            except ConnectionRefusedError:
                left.unlink()
    name = f"{os.getpid()}-{time.monotonic_ns()}.socket"
    path = package.parent / name
    return path if len(os.fsencode(path)) <= _LONGEST_PATH_BYTES else Path(tempfile.gettempdir(), f"lab-record-{name}")


def recorded_environment(package: Path, folder: Path, values: int | None, notes: Path) -> Mapping[str, str]:
    """Return the environment of a recorded command: this process's own, and what loads the recorder.

    Args:
        package: see `install_package`.
        folder: the folder of the user's scripts.
        values: limit of recorded elements for each side of a call; None: the default.
        notes: socket for the statements of recorded processes.
    """
    before = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join(filter(None, (str(package / _STARTUP), before)))
    settings = {**json.loads(make_environment(str(folder), values, before)[SETTINGS_VARIABLE]), "moves": True}
    own = {SETTINGS_VARIABLE: json.dumps(settings), SOCKET_VARIABLE: str(notes)}
    return {**os.environ, "PYTHONPATH": path, **own}


_OWN = str(Path(__file__).parents[3])
"""This lab comes before any other folder `lab`."""


def start_python(program: str, **how: Any) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, without output, with the path of this Python.

    Args:
        program: Its text.
        how: Arguments of `Popen`.
    """
    path = [_OWN, *map(os.path.abspath, sys.path)]
    words = [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {path!r}; {program}"]  # it needs no `site`
    silent = subprocess.DEVNULL
    return subprocess.Popen(words, stdout=silent, stderr=silent, start_new_session=True, **how)
