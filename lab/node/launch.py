"""How a worker, or starter, is started: a fork of the agent with pipes of its own, a user, an environment, a gate."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import socket
import sys
import termios
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

from . import inlet, processes, starter, statement, system_calls, trace_file, warm
from .config import STRICT_OPEN_FILES
from .messages.agent import ANSWERS, CALLED, OWN, STARTER, TERMINAL, Claim, WorkerStart
from .rank import joining, worker
from .rank_process import Worker
from .users import Users

_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031
_HELD_BACK = (signal.SIGTERM, signal.SIGINT)
"""Until a fork is no agent any more, whose handlers would remove the run."""
_OUT_OF_THE_WAY = 100
"""Descriptors from here on are far from those that scripts use."""


@dataclass(frozen=True)
class LaunchContext:
    """What a worker is given by its agent."""

    claim: Claim
    users: Users
    folder: str
    note_socket: str
    import_root: str
    packages: str = ""
    """The virtual environment that it uses; empty: none."""
    strict: bool = False
    """Whether it may make none of the calls that take from tables of the whole machine."""
    mounts: bool = False
    """Whether it sees folders of the machine, and may make no setuid file there."""
    step: bool = False
    """Whether it is held before each call."""
    passed: Mapping[int, int] = field(default_factory=dict)
    """Descriptors that it has from its starter: number in the worker -> the agent's own."""


class _Ends(NamedTuple):
    """The worker's ends of its pipes."""

    streams: tuple[int, int, int]
    gate: int
    stack: int
    step: int
    hold: int
    reads: inlet.WorkerEnds
    signals: Collection[int]
    """Those that it is to hold back."""
    writes: socket.socket | None
    """Where it has its writes seen; None: nobody sees them."""


class Served(NamedTuple):
    """A process that sees the writes of one worker, and may refuse them or slow them down."""

    pid: int = 0
    """0: there is none."""
    told: int = -1
    """Where it is told what to do with writes."""
    listener: socket.socket | None = None
    """Where the worker sends it what it is to listen to."""


def start_worker(start: WorkerStart, context: LaunchContext) -> Worker:
    """Fork a worker, or starter, that waits at its gate."""
    out_r, out_w = os.pipe2(os.O_CLOEXEC)
    err_r, err_w = os.pipe2(os.O_CLOEXEC)
    stack_r, stack_w = os.pipe2(os.O_CLOEXEC)
    gate_r, gate_w = os.pipe2(os.O_CLOEXEC)
    step_r, step_w = os.pipe2(os.O_CLOEXEC) if context.step else (-1, -1)
    hold_r, hold_w = os.pipe2(os.O_CLOEXEC) if start.triggers else (-1, -1)
    seen = _see_writes(start, context)
    reads, ends = inlet.open_inlet(start.stdin)
    for fd in (out_r, err_r):
        with suppress(OSError):  # a larger pipe is only faster
            fcntl.fcntl(fd, _F_SETPIPE_SZ, _PIPE_BYTES)
    for fd in (out_w, err_w, *({ends.stdin, ends.terminal} - {-1})):
        context.users.give(fd, start.local_rank)  # scripts open /dev/stdout
    notes = _bind_notes(start, context)
    trace = trace_file.TraceFile() if context.claim.trace and start.rank >= 0 else None
    agent = os.getpid()
    held = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
    pid = os.fork()
    if pid == 0:
        theirs = _Ends((ends.stdin, out_w, err_w), gate_r, stack_w, step_r, hold_r, ends, held, seen.listener)
        _become_worker(start, context, agent, theirs, trace)
        os._exit(70)
    signal.pthread_sigmask(signal.SIG_SETMASK, held)
    ends.close()
    for fd in (out_w, err_w, stack_w, gate_r):
        os.close(fd)
    for fd in (out_r, err_r, stack_r):
        os.set_blocking(fd, False)
    for said_r, said_w in ((step_r, step_w), (hold_r, hold_w)):
        if said_r >= 0:
            os.close(said_r)
            os.set_blocking(said_w, False)
    streams = {reads.answered: ANSWERS, out_r: 1, err_r: 2, reads.terminal: TERMINAL}  # it answers after it has printed
    streams.pop(-1, None)
    known = (start.rank, start.local_rank, pid, notes, streams, reads, stack_r, gate_w, step_w, trace)
    if seen.listener is not None:
        seen.listener.close()
    return Worker(*known, attempt=start.attempt, hold_fd=hold_w, write_fd=seen.told, write_pid=seen.pid)


def _see_writes(start: WorkerStart, context: LaunchContext) -> Served:
    """Who is going to see the writes of a worker, if anybody."""
    if not any(one.get("writes") for one in start.triggers):
        return Served()
    served: Served = _write_filter().start_serving(*context.users.worker(start.local_rank))
    return served


def _write_filter() -> Any:
    return import_module("..features.faults.on_node.write_filter", __package__)


def _bind_notes(start: WorkerStart, context: LaunchContext) -> socket.socket:
    """The socket for the notes of one rank, which no other can write to where ranks are users of their own."""
    notes = statement.bind_notes(context.note_socket)
    os.chmod(context.note_socket, 0o600)
    context.users.give(context.note_socket, start.local_rank)
    return notes


def _become_worker(
    start: WorkerStart, context: LaunchContext, agent: int, theirs: _Ends, trace: trace_file.TraceFile | None
) -> None:
    try:
        stack = fcntl.fcntl(theirs.stack, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
        gate = fcntl.fcntl(theirs.gate, fcntl.F_DUPFD_CLOEXEC, stack + 1)
        trace_fd = -1 if trace is None else fcntl.fcntl(trace.fd, fcntl.F_DUPFD_CLOEXEC, gate + 1)
        step_fd = -1 if theirs.step < 0 else fcntl.fcntl(theirs.step, fcntl.F_DUPFD_CLOEXEC, gate + 2)
        writes = None if theirs.writes is None else theirs.writes.fileno()
        if writes is not None:
            writes = fcntl.fcntl(writes, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
        hold_fd = -1 if theirs.hold < 0 else fcntl.fcntl(theirs.hold, fcntl.F_DUPFD_CLOEXEC, gate + 3)
        passed = {
            number: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY) for number, fd in context.passed.items()
        }
        streams, ends = theirs.streams, theirs.reads
        if start.stdin == OWN:
            streams = (ends.terminal, ends.terminal, ends.terminal)
        ends = ends.out_of_the_way()
        kept = (stack, gate, trace_fd, step_fd, hold_fd, *ends[1:])
        processes.leave_agent_behind(*streams, keep=(*kept, *passed.values(), -1 if writes is None else writes))
        signal.pthread_sigmask(signal.SIG_SETMASK, theirs.signals)
        for number, fd in passed.items():
            os.dup2(fd, number)
            os.close(fd)
        if start.stdin == OWN:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C comes here
        os.chdir(context.folder)
        if context.strict:
            resource.setrlimit(resource.RLIMIT_NOFILE, (STRICT_OPEN_FILES, STRICT_OPEN_FILES))
        processes.drop_privileges(*context.users.worker(start.local_rank))
        if context.users.many:
            system_calls.close_ways_around(strict=context.strict, mounts=context.mounts)
        context.users.share_what_is_made()
        processes.die_with_parent(agent)
        processes.prefer_as_oom_victim()
        changed = {name: value for name, value in start.env.items() if os.environ.get(name) != value}
        os.environ.update(start.env)
        if trace is not None:
            before = os.environ.get("PYTHONPATH", "")
            os.environ.update(joining.environment(context.folder, context.claim.trace_values, before))
        spec: dict[str, Any] = {
            "rank": start.rank,
            "argv": start.argv,
            "script": os.path.join(context.import_root if start.stdin == CALLED else "", start.script or start.argv[0]),
            "folder": context.folder,
            "note_socket": context.note_socket,
            "stack_fd": stack,
            "trace_fd": None if trace is None else trace_fd,
            "stdin": start.stdin,
            "terminal_fd": ends.terminal,
            "granted_fd": ends.granted,
            "calls_fd": ends.calls,
            "answers_fd": ends.answers,
            "trace_values": context.claim.trace_values,
            "step_fd": None if theirs.step < 0 else step_fd,
            "hold_fd": None if theirs.hold < 0 else hold_fd,
            "triggers": start.triggers,
            "packages": context.packages,
        }
        os.read(gate, 1)
        os.close(gate)
        if writes is not None:
            _write_filter().install(socket.socket(fileno=writes))
        if start.rank == STARTER:
            starter.run(start, changed, cold=context.claim.cold)
        if context.claim.cold:
            for fd in {*kept} - {gate, -1}:
                os.set_inheritable(fd, True)
            os.environ[worker.SPEC_VARIABLE] = json.dumps(spec)
            importing = f"import sys; sys.path.append({context.import_root!r}); from labnode.node.rank import worker"
            code = f"{importing}; worker.start_cold()"
            os.execv(sys.executable, [sys.executable, "-u", "-c", code])
        spec["missing"] = warm.missing_modules()
        worker.prepare_fork(changed)
        worker.run_worker(spec)
    except BaseException:
        import traceback

        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(70)
