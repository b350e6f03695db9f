"""Start a worker or starter: a fork of the agent with its own pipes, user, and environment, and with a gate."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import resource
import shutil
import signal
import socket
import sys
import termios
from contextlib import suppress
from typing import NoReturn

from . import channels, launched, processes, statement, system_calls, warm
from .messages.agent import OWN, PYTHON, STARTER, STRICT_OPEN_FILES, Config, WorkerSettings, WorkerStart, is_older
from .rank import joining, worker
from .rank_process import Worker
from .users import UMASK, Users

_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031
_HELD_BACK = (signal.SIGTERM, signal.SIGINT)
"""Signals to block until a fork has left the agent's handlers behind, which would remove the run."""


def start_worker(start: WorkerStart, settings: WorkerSettings, users: Users, config: Config) -> Worker:
    """Fork a worker or starter that waits at its gate."""
    note_socket = start.env[statement.SOCKET_VARIABLE]
    mine, theirs = channels.open_channels(start, settings)
    for name in {"in", "out", "err", "terminal"} & theirs.keys():
        users.assign(theirs[name], start.local_rank)  # scripts open /dev/stdout
    notes = statement.bind_notes(note_socket)  # if ranks are separate users, no other rank can write there
    os.chmod(note_socket, 0o600)
    users.assign(note_socket, start.local_rank)
    agent = os.getpid()
    held = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
    if (pid := os.fork()) == 0:
        try:
            streams, far = channels.relocate_descriptors(start, theirs)
            processes.detach_from_agent(streams, keep=far.values())
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            _become_worker(start, settings, users, config, far, agent)
        except BaseException:
            import traceback

            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(70)
    signal.pthread_sigmask(signal.SIG_SETMASK, held)
    for fd in theirs.values():
        os.close(fd)
    return wrap_worker(start, pid, notes, mine, users)


def wrap_worker(start: WorkerStart, pid: int, notes: socket.socket, ends: dict[str, int], users: Users) -> Worker:
    """Return a worker by the agent's ends of its channels; start its sidecar if it has one."""
    for name in ("out", "err"):
        with suppress(OSError):  # a larger pipe is only faster
            fcntl.fcntl(ends[name], _F_SETPIPE_SZ, _PIPE_BYTES)
    for name in ends.keys() - {"sidecar"}:
        os.set_blocking(ends[name], False)
    sidecar_pid = 0
    if "sidecar" in ends:
        server, user = channels.sidecar_module(start), users.worker(start.local_rank)
        sidecar_pid, ends["sidecar"] = server.start_serving(*user, socket.socket(fileno=ends["sidecar"]))
    return Worker(start, pid, notes, ends, sidecar_pid)


def _become_worker(
    start: WorkerStart, settings: WorkerSettings, users: Users, config: Config, far: dict[str, int], agent: int
) -> None:
    """Run the worker in this process; return only if the agent gave it up."""
    if start.stdin == OWN:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that this process receives Ctrl-C
    os.chdir(settings.folder)
    if config.strict:  # system calls that use tables of the whole machine are refused
        resource.setrlimit(resource.RLIMIT_NOFILE, (STRICT_OPEN_FILES, STRICT_OPEN_FILES))
    processes.drop_privileges(*users.worker(start.local_rank))
    if users.are_separate:
        system_calls.close_ways_around(strict=config.strict, mounts=config.mounts)
        os.umask(UMASK)
    processes.die_with_parent(agent)
    processes.prefer_as_oom_victim()
    changed = {name: value for name, value in start.env.items() if os.environ.get(name) != value}
    os.environ.update(start.env)
    if "trace" in far:
        before = os.environ.get("PYTHONPATH", "")
        os.environ.update(joining.make_environment(settings.folder, settings.trace_values, before))
    if (spec := channels.await_gate(start, settings, far)) is None:
        return
    if start.rank == STARTER:
        _become_starter(start)
    if settings.cold:
        channels.become_cold_worker(spec, settings.import_root)
    spec["missing"] = warm.missing_modules()
    worker.prepare_fork(changed)
    worker.run_worker(spec)


class NodeLacks(Exception):
    """The node lacks what the run needs."""


def check_torch(least: str, user: str) -> None:
    """Refuse a run that needs a newer torch, or whose `user` of torch does.

    Raises:
        NodeLacks: the node has an older one.
    """
    import torch

    if is_older(torch.__version__, least):
        raise NodeLacks(f"it has torch {torch.__version__}, but {user} needs torch {least} or newer")


def check_starter(start: WorkerStart) -> None:
    """Refuse a starter whose program, or what its workers import, is not in this node.

    Raises:
        NodeLacks: something is missing.
    """
    if (program := start.argv[0]) != PYTHON and _find_program(program) is None:
        raise NodeLacks(f"it has no {program}, which has to start the workers")
    for module in start.modules:
        if importlib.util.find_spec(module) is None:
            raise NodeLacks(f"its Python has no {module}, which the workers need")


def _find_program(program: str) -> str | None:
    """Return the path of a program; the folder of the node's Python comes first, whether or not it is on PATH."""
    bin_folder = os.path.dirname(sys.executable)
    return shutil.which(program, path=os.pathsep.join((bin_folder, os.environ.get("PATH", os.defpath))))


def _become_starter(start: WorkerStart) -> NoReturn:
    argv = [sys.executable if word == PYTHON else word for word in start.argv]
    os.environ[launched.VARIABLE] = f"{os.getpid()}:{os.environ[launched.VARIABLE]}"
    path = _find_program(argv[0]) or argv[0]
    os.execv(path, [path, *argv[1:]])
