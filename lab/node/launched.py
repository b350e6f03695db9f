"""A process that torchrun or mpirun started becomes a recorded worker, and reports to the agent before its script.

Its start-up hook calls `attach_worker`, see `startup`. The process forks. The child becomes the worker, in a new
interpreter. The parent stays: it passes signals on, reports the wait statuses of the worker to the agent, and ends as
the worker ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NoReturn

from . import channels, processes, statement
from .messages import typed
from .messages.agent import Launch, Launched, WorkerStart
from .rank import note

VARIABLE = "LAB_LAUNCHED"
"""Variable of a launcher's process: its pid and the path of a `Launch`. Only its children become workers."""
_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "RANK")
_LOCAL_RANKS = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK")
_RESTARTS = "TORCHELASTIC_RESTART_COUNT"
"""Variable of launchers that may restart workers, each time at another port."""
_ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
"""Signals by which a launcher stops a worker."""


def attach_worker() -> None:
    """Become a worker if a launcher started this process for a script; then never return."""
    pid, _, path = os.environ.get(VARIABLE, "").partition(":")
    rank, local_rank = _number(_RANKS), _number(_LOCAL_RANKS)
    if pid != str(os.getppid()) or rank is None or sys.argv[0] in ("", "-c", "-m"):
        return
    with open(path, encoding="utf-8") as file:
        launch = typed.read_typed(Launch, json.load(file))
    if (planned := {worker.rank: worker for worker in launch.workers}) and rank not in planned:
        sys.exit(f"this process cannot become a worker: rank {rank} does not belong to this node")
    plan = planned.get(rank, WorkerStart(rank, local_rank or 0, {}, []))
    attempt = ":".join(os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
    start = plan._replace(argv=list(sys.argv), attempt=attempt if _RESTARTS in os.environ else "")
    _become(channels.add_triggers(start, launch.triggers), launch)


def _number(names: tuple[str, ...]) -> int | None:
    """Return the first of these variables that is a number."""
    values = (os.environ.get(name, "") for name in names)
    return next((int(value) for value in values if value.isascii() and value.isdigit() and len(value) < 10), None)


def _become(start: WorkerStart, launch: Launch) -> NoReturn:
    mine, theirs = channels.open_channels(start, launch.settings)
    mine["status"], status = os.pipe2(os.O_CLOEXEC)
    note_socket = os.path.join(launch.home, f"n{os.getpid()}")
    mine["notes"] = statement.bind_notes(note_socket).detach()
    me, held = os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    if (child := os.fork()) == 0:
        try:
            os.setsid()
            processes.die_with_parent(me)
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            for fd in (*mine.values(), status):
                os.close(fd)
            _run(start, launch, note_socket, theirs)
        finally:
            os._exit(70)
    announcement = Launched(start.rank, time.time(), attempt=start.attempt, local_rank=start.local_rank, pid=child)
    with suppress(OSError):
        note.send_statement(launch.socket, announcement._replace(channels=tuple(mine)), [*mine.values()])
    for fd in (*mine.values(), *theirs.values()):
        os.close(fd)
    _stand_in(child, status)


def _run(start: WorkerStart, launch: Launch, note_socket: str, theirs: Mapping[str, int]) -> None:
    streams, far = channels.relocate_descriptors(start, dict(theirs))
    processes.set_streams(streams)
    os.chdir(launch.settings.folder)
    os.environ.pop(VARIABLE)
    os.environ.update({**start.env, **os.environ, **launch.environment, statement.SOCKET_VARIABLE: note_socket})
    if (spec := channels.await_gate(start, launch.settings, far)) is None:
        sys.stderr.write("this process cannot become a worker: it does not belong to this run\n")
        os._exit(1)
    channels.become_cold_worker(spec, launch.settings.import_root)


def _stand_in(child: int, report: int) -> NoReturn:
    """Pass signals on to the worker, report its wait statuses, and end as it ends."""
    while True:
        if (number := signal.sigwait(signal.valid_signals())) != signal.SIGCHLD:
            if number in _ENDING:
                _write_status(report, -number)
            processes.signal_session(child, number)
            continue
        while True:
            pid, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if not pid:
                break
            _write_status(report, status)
            if os.WIFEXITED(status):
                os._exit(os.WEXITSTATUS(status))
            if os.WIFSIGNALED(status):
                processes.end_by_signal(os.WTERMSIG(status))


def _write_status(report: int, number: int) -> None:
    with suppress(OSError):  # the agent has gone
        os.write(report, number.to_bytes(4, sys.byteorder, signed=True))
