"""A process that a script starts becomes a recorded rank: once it joins a process group, it reports to the agent.

Forks of a worker inherit this. Other interpreters load it when they import torch.distributed, see `startup`.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import sys
import threading
import time
from contextlib import suppress
from types import ModuleType
from typing import Any

from .. import trace_file
from ..messages.agent import Joining, Leaving
from ..recorder import install as recorder
from ..recorder.journal import journal, source
from ..recorder.patching import call_before, finder, replace_function, unseen, when_imported, wraps_function
from ..statement import SETTINGS_VARIABLE, SOCKET_VARIABLE, STACK_SIGNAL
from . import groups, note

STARTUP = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "startup")
_OWN_CODE = (os.path.abspath(__file__), os.path.join(os.path.dirname(recorder.__file__), ""))
_FAR = 100
"""Descriptors from here on do not interfere with scripts."""


class _Process:
    """State of this process, or of a thread that is a rank of its own."""

    started = False
    """Whether a script started it; false for workers."""
    folder = ""
    values: int | None = None
    socket = ""
    trace = stack = -1
    rank = -1
    """The rank that it claims."""
    left = False
    world_size = thread = 0
    """Size of its world; Python's identifier of the thread, 0 for the process."""
    raised = moves = watched = False
    """Whether an error was reported; whether it can join several worlds, with its threads as ranks; whether a feature
    watches for that. Each thread's first call has to pass its wrapper, see `_of_thread.began`."""
    of_worker = False
    """Whether it is a fork of a worker; the agent reports crashes of forks, other processes handle their own."""

    def forked(self) -> None:
        """Reset the state in a fork."""
        self.started, self.trace, self.stack, self.rank, self.left, self.raised = True, -1, -1, -1, False, False
        vars(_of_thread).clear()

    def record(self) -> None:
        """Begin to record, before the agent knows of this process."""
        self.trace, collects = make_trace(), gc.isenabled()
        gc.disable()  # the new objects would cause a full collection, which takes longer than all of this
        recorder.start_recording(self.rank, self.trace, self.folder, self.values)
        if collects:
            gc.enable()

    def join(self, rank: int, world_size: int, meeting: str) -> None:
        """Report this process to the agent; only the first call has an effect."""
        if self.trace < 0 or self.rank >= 0 or rank < 0:
            return
        self.rank, self.world_size, first = rank, world_size, self.stack < 0
        self.stack = _writes_stacks(crashes=True) if first else self.stack
        try:
            joining = Joining(rank, time.time(), world_size=world_size, meeting=meeting[:300], thread=self.thread)
            note.send_statement(self.socket, joining, [self.trace, self.stack])
        except OSError:  # the run is over
            recorder.stop_recording()
        else:
            if first:
                _report_end()

    def report(self, error: BaseException) -> None:
        """Report an error to the agent."""
        self.raised = True
        with suppress(OSError, ValueError):
            note.send_statement(self.socket, note.describe_error(self.rank, note.without_frames(error, _OWN_CODE)))

    def leave(self, code: int | None, *, stays: bool = False) -> None:
        """Report that the process, or only its rank if it `stays`, ends by itself; only the first call has effect."""
        if self.rank < 0 or self.left:
            return
        self.left = True
        with suppress(OSError, ValueError):
            note.send_statement(self.socket, Leaving(self.rank, time.time(), code=code, stays=stays))
        if not stays:
            recorder.stop_recording()


_process = _Process()
_of_thread = threading.local()
_lock = threading.RLock()
os.register_at_fork(after_in_child=_process.forked)


def make_trace() -> int:
    """Return the descriptor of a new trace."""
    return _move_far(trace_file.make_trace_file())


def _move_far(fd: int) -> int:
    far = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FAR)
    os.close(fd)
    return far


def make_environment(folder: str, values: int | None, before: str) -> dict[str, str]:
    """Return variables that make every Python of a script load this module; `before` is the old PYTHONPATH."""
    path = f"{STARTUP}{os.pathsep}{before}" if before else STARTUP
    return {"PYTHONPATH": path, SETTINGS_VARIABLE: json.dumps({"folder": folder, "values": values})}


def current_process() -> _Process:
    """Return the state of this process, or of this thread if it is a rank of its own."""
    process: _Process = getattr(_of_thread, "process", _process)
    return process


def prepare_process(
    folder: str, values: int | None, note_socket: str, *, started: bool = False, moves: bool = False
) -> None:
    """Record this process, if a script `started` it, and its forks once they join a process group.

    In a worker this comes after its own recorder.
    """
    _process.started, _process.folder, _process.values, _process.socket = started, folder, values, note_socket
    _process.of_worker, _process.moves = not started, moves
    if started:  # where is a process that its world waits for? forks have this, too
        _writes_stacks()
    when_imported("torch.distributed.distributed_c10d", _watch)
    watch_stores = call_before(_join_at_store)
    when_imported("torch.distributed.rendezvous", lambda one: replace_function(one, "_create_c10d_store", watch_stores))


def prepare_started(settings: str, name: str, path: Any, target: Any) -> Any:
    """Prepare an interpreter that a script started and that imports torch.distributed; return that module's spec."""
    known, note_socket = json.loads(settings), os.environ[SOCKET_VARIABLE]
    groups.choose_backend(int(os.environ.get("RANK", "0")), str(known["folder"]), note_socket)
    prepare_process(str(known["folder"]), known["values"], note_socket, started=True, moves=known.get("moves", False))
    return finder.find_spec(name, path, target)


def _watch(module: ModuleType) -> None:
    def beginning(init: Any) -> Any:
        @wraps_function(init)
        def wrapper(*arguments: Any, **named: Any) -> Any:
            process = current_process()
            with _lock:
                begins = process.started and process.trace < 0
                if begins:
                    process.record()
            with unseen:
                if not begins and (not process.watched or hasattr(_of_thread, "began")):
                    return init(*arguments, **named)
                try:
                    return module.init_process_group(*arguments, **named)  # recorded from now on
                except BaseException:  # perhaps before it reached the rendezvous
                    rank, world_size = named.get("rank"), named.get("world_size")
                    if isinstance(rank, int):
                        process.join(rank, world_size if isinstance(world_size, int) else -1, "")
                    raise

        return wrapper

    replace_function(module, "init_process_group", beginning)
    replace_function(module, "_new_process_group_helper", call_before(_meet))
    groups.refuse_unknown_ranks(module)


def _meet(*arguments: Any, **named: Any) -> None:
    """Report that this process makes a group with the ranks that it met."""
    process = current_process()
    if process.trace >= 0 and process.rank < 0:
        values = {**dict(zip(("group_size", "group_rank", "", "", "store"), arguments)), **named}
        process.join(int(values["group_rank"]), int(values["group_size"]), _describe_store(values.get("store")))


def _join_at_store(hostname: str, port: int, rank: int, world_size: int, *rest: Any, **options: Any) -> None:
    """Report that this process looks for a store, even if no other rank comes."""
    current_process().join(int(rank), int(world_size), str(port))


def _describe_store(store: Any) -> str:
    """Return the port or the file of a store; empty if unknown."""
    for _ in range(8):
        store = getattr(store, "underlying_store", None) or store
    return str(getattr(store, "port", "") or getattr(store, "path", ""))


def _writes_stacks(*, crashes: bool = False) -> int:
    """Make this process write its Python stack on request, or in a crash too; return the descriptor of the file."""
    import faulthandler

    kept = _move_far(os.memfd_create("stack"))
    if crashes and (_process.of_worker or not faulthandler.is_enabled()):
        faulthandler.enable(file=kept, all_threads=True)
    faulthandler.register(STACK_SIGNAL, file=kept, all_threads=True)
    return kept


def _report_end() -> None:
    """Report to the agent how this process ends, in each possible way."""
    leave, hook = os._exit, sys.excepthook

    @wraps_function(leave)
    def _exit(status: int) -> Any:
        if not _process.left:  # else it is the end of a child of multiprocessing
            _record_exit()
        _process.leave(status)
        leave(status)

    @wraps_function(hook)
    def excepthook(kind: Any, error: Any, trace: Any) -> None:
        if _process.rank >= 0 and isinstance(error, BaseException):
            _process.report(error)
            _process.leave(1)
            trace = error.__traceback__
        hook(kind, error, trace)

    atexit.register(_process.leave, None)
    os._exit, sys.excepthook = _exit, excepthook
    replace_function(sys, "exit", call_before(_record_exit))
    when_imported("multiprocessing.util", lambda module: replace_function(module, "_exit_function", _leaving))


def _record_exit(*_: Any) -> None:
    """Record the line at which the script calls sys.exit or os._exit: nothing shows it once the process ends."""
    if _process.rank >= 0 and threading.current_thread() is threading.main_thread():
        journal.add("exit", at=source.line())


def _leaving(plain: Any) -> Any:
    """Wrap the exit function of multiprocessing, which children call before Python prints their error."""

    @wraps_function(plain)
    def _exit_function(*arguments: Any, **named: Any) -> Any:
        error = sys.exc_info()[1]
        code = int(error is not None)
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
            error = error.__context__ if code else None  # PyTorch's spawn has reported that error and calls sys.exit
        if _process.rank >= 0 and error is not None and not _process.left:
            _process.report(error)
        _process.leave(code)
        return plain(*arguments, **named)

    return _exit_function
