"""The agent's side of one worker: fork it, hold its pipes, know how it ended."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import termios
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from . import calls, inlet, processes, trace_file, warm, worker
from .messages import Claim, Exited, WorkerStart
from .terminal_messages import ANSWERS, CALLED, OWN, TERMINAL
from .users import Users
from .worker_messages import Raised

_PIPE_BYTES = 1 << 20
_STACK_LIMIT_BYTES = 256 * 1024
_STACK_READS = 16
_F_SETPIPE_SZ = 1031
_MOST_HALTS = 100
"""So often it is told that a worker was stopped or let go on."""
_MOST_FORKS = 4
"""Processes of one worker whose stacks are asked for."""
_STACK_DEADLINE_S = 0.2
_STACK_PAUSE_S = 0.01
"""faulthandler writes a stack without a pause."""


@dataclass
class Worker:
    """A rank's process and the agent's ends of its pipes."""

    rank: int
    local_rank: int
    pid: int
    notes: socket.socket
    """Where the datagrams of `note` arrive."""
    streams: dict[int, int]
    """Read end -> 1 (standard output), 2 (standard error), 3 (its terminal) or 4 (its answers)."""
    inlet: inlet.Inlet
    """Where what it reads goes in."""
    stack_fd: int
    gate_fd: int
    """Closing it lets the worker run its script."""
    step_fd: int = -1
    """Where it is told how far it may go; -1 where it is not held."""
    trace: trace_file.TraceFile | None = None
    """What its recorder writes; None where it is not recorded."""
    status: int | None = None
    """Wait status; None while it runs."""
    raised: Raised | None = None
    out_of_memory: bool = False
    """Whether the agent killed it because memory ran out."""
    memory_bytes: int | None = None
    """What it held then."""
    stack: bytes = b""
    """What faulthandler wrote."""
    stopped: bool = False
    """Whether the lab asked it to end."""
    output_bytes: int = 0
    """What it has printed, with what was dropped of it."""
    note_bytes: int = 0
    """What its notes took, with those that were dropped."""
    halts: int = 0
    """How often it was stopped or let go on."""
    started: float = 0.0
    """Unix time at which the gate opened."""

    def open_gate(self) -> None:
        """Let the worker run its script."""
        if self.gate_fd >= 0:
            self.started = time.time()
            os.close(self.gate_fd)
            self.gate_fd = -1

    def read_stack(self) -> None:
        """Take over what faulthandler has written so far."""
        with suppress(OSError):  # nothing more yet
            for _ in range(_STACK_READS):  # somebody may write as fast as it is read
                chunk = os.read(self.stack_fd, 65536)
                if not chunk:
                    return
                if len(self.stack) < _STACK_LIMIT_BYTES:
                    self.stack += chunk

    def look(self) -> tuple[list[str], int | None]:
        """What has become of it: each signal that stopped it, "" where it was let go on; its status if it ended."""
        halts: list[str] = []
        for _ in range(_MOST_HALTS):  # it may be stopped and let go as fast as it is looked at
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if not pid:
                return halts, None
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                return halts, status
            name = processes.signal_name(os.WSTOPSIG(status)) if os.WIFSTOPPED(status) else None
            self.halts += 1
            if self.halts <= _MOST_HALTS:
                halts.append(name or "")
        return halts, None

    def exited(self, ended: float, node: str, run: str, *, starved: bool) -> Exited:
        """What there is to say of its end; `starved`: the kernel killed it because memory ran out."""
        status, raised = self.status or 0, self.raised
        killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        return Exited(
            rank=self.rank,
            time=ended,
            node=node,
            run=run,
            code=None if killed_by else os.WEXITSTATUS(status),
            signal=processes.signal_name(killed_by),
            out_of_memory=starved or self.out_of_memory,
            stopped=self.stopped,
            error=raised.error if raised else "",
            traceback=raised.traceback if raised else "",
            raised=raised.time if raised else None,
            stack=self.stack.decode("utf-8", "replace") if killed_by else "",
            memory_bytes=self.memory_bytes,
        )

    def begin_stack(self) -> None:
        """Have the worker write its stack, and forget what it wrote before."""
        self.read_stack()
        self.stack = b""
        self.signal(worker.STACK_SIGNAL)

    def ask_for_stack(self, pid: int | None = None) -> None:
        """Have the worker, or a process that it forked, write its stack now, and take over what it writes."""
        if not processes.catching(worker.STACK_SIGNAL, [pid or self.pid]):
            return
        with suppress(OSError):
            os.kill(pid or self.pid, worker.STACK_SIGNAL)
        end, first, known = time.monotonic() + _STACK_DEADLINE_S, len(self.stack), -1
        while time.monotonic() < end:
            self.read_stack()
            if first < len(self.stack) == known and self.stack.endswith(b"\n"):
                return
            known = len(self.stack)
            time.sleep(_STACK_PAUSE_S)

    def read_stacks_of_forks(self) -> None:
        """Where the worker waits for processes that it forked, such as a DataLoader's, add their stacks to its own."""
        if b"/multiprocessing/" not in self.stack:
            return
        forks = processes.catching(worker.STACK_SIGNAL, processes.descendants(self.pid))
        for pid in forks[:_MOST_FORKS]:
            self.stack += b"Process %d, started by this worker:\n" % pid
            self.ask_for_stack(pid)

    def signal(self, number: int) -> None:
        """Send a signal to the worker, if it still runs."""
        if self.status is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def close(self) -> None:
        """Close the agent's ends of all pipes."""
        for fd in (*self.streams, self.stack_fd, self.gate_fd, self.step_fd):
            if fd >= 0:
                os.close(fd)
        self.streams, self.stack_fd, self.gate_fd, self.step_fd = {}, -1, -1, -1
        self.notes.close()
        self.inlet.close()
        if self.trace is not None:
            self.trace.close()


@dataclass(frozen=True)
class LaunchContext:
    """What a worker is given by its agent."""

    claim: Claim
    users: Users
    folder: str
    note_socket: str
    import_root: str
    step: bool = False
    """Whether it is held before each call."""


def start_worker(start: WorkerStart, context: LaunchContext) -> Worker:
    """Fork a worker that waits at its gate."""
    out_r, out_w = os.pipe2(os.O_CLOEXEC)
    err_r, err_w = os.pipe2(os.O_CLOEXEC)
    stack_r, stack_w = os.pipe2(os.O_CLOEXEC)
    gate_r, gate_w = os.pipe2(os.O_CLOEXEC)
    step_r, step_w = os.pipe2(os.O_CLOEXEC) if context.step else (-1, -1)
    reads, ends = inlet.open_inlet(start.stdin)
    for fd in (out_r, err_r):
        with suppress(OSError):  # a larger pipe is only faster
            fcntl.fcntl(fd, _F_SETPIPE_SZ, _PIPE_BYTES)
    for fd in (out_w, err_w, *({ends.stdin, ends.terminal} - {-1})):
        context.users.give(fd, start.local_rank)  # scripts open /dev/stdout
    notes = _bind_notes(start, context)
    trace = trace_file.TraceFile() if context.claim.trace and start.rank >= 0 else None
    agent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become_worker(start, context, agent, gate_r, (ends.stdin, out_w, err_w), stack_w, trace, step_r, ends)
        os._exit(70)
    ends.close()
    for fd in (out_w, err_w, stack_w, gate_r):
        os.close(fd)
    for fd in (out_r, err_r, stack_r):
        os.set_blocking(fd, False)
    if context.step:
        os.close(step_r)
        os.set_blocking(step_w, False)
    streams = {reads.answered: ANSWERS, out_r: 1, err_r: 2, reads.terminal: TERMINAL}  # it answers after it has printed
    streams.pop(-1, None)
    return Worker(start.rank, start.local_rank, pid, notes, streams, reads, stack_r, gate_w, step_w, trace)


def _bind_notes(start: WorkerStart, context: LaunchContext) -> socket.socket:
    """The socket for the notes of one rank, which no other can write to where ranks are users of their own."""
    notes = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notes.bind(context.note_socket)
    os.chmod(context.note_socket, 0o600)
    context.users.give(context.note_socket, start.local_rank)
    notes.setblocking(False)
    return notes


def _become_worker(
    start: WorkerStart,
    context: LaunchContext,
    agent: int,
    gate: int,
    streams: tuple[int, int, int],
    stack: int,
    trace: trace_file.TraceFile | None,
    step: int,
    ends: inlet.WorkerEnds,
) -> None:
    try:
        stack = fcntl.fcntl(stack, fcntl.F_DUPFD_CLOEXEC, 100)
        gate = fcntl.fcntl(gate, fcntl.F_DUPFD_CLOEXEC, stack + 1)
        trace_fd = -1 if trace is None else fcntl.fcntl(trace.fd, fcntl.F_DUPFD_CLOEXEC, gate + 1)
        step_fd = -1 if step < 0 else fcntl.fcntl(step, fcntl.F_DUPFD_CLOEXEC, gate + 2)
        if start.stdin == OWN:
            streams = (ends.terminal, ends.terminal, ends.terminal)
        ends = ends.out_of_the_way()
        kept = (stack, gate, trace_fd, step_fd, *ends[1:])
        processes.leave_agent_behind(*streams, keep=kept)
        if start.stdin == OWN:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C comes here
        os.chdir(context.folder)
        processes.drop_privileges(*context.users.worker(start.local_rank))
        context.users.share_what_is_made()
        processes.die_with_parent(agent)
        processes.prefer_as_oom_victim()
        changed = {name: value for name, value in start.env.items() if os.environ.get(name) != value}
        os.environ.update(start.env)
        spec: dict[str, Any] = {
            "rank": start.rank,
            "argv": start.argv,
            "script": calls.PROGRAM if start.stdin == CALLED else start.script or start.argv[0],
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
            "step_fd": None if step < 0 else step_fd,
        }
        os.read(gate, 1)
        os.close(gate)
        if context.claim.cold:
            for fd in {*kept} - {gate, -1}:
                os.set_inheritable(fd, True)
            os.environ[worker.SPEC_VARIABLE] = json.dumps(spec)
            code = (
                f"import sys; sys.path.append({context.import_root!r}); from labnode.worker import start_cold as s; s()"
            )
            os.execv(sys.executable, [sys.executable, "-u", "-c", code])
        spec["missing"] = warm.missing_modules()
        worker.prepare_fork(changed)
        worker.run_worker(spec)
    except BaseException:
        import traceback

        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(70)
