"""See every write of a worker, and refuse or delay it: a seccomp filter with a listener that a process serves.

It works in any image, needs no privilege, and covers child processes of the worker. It does not see writes to files
that are mapped into memory. Only runs with a disk fault have it: each write takes 20 us longer. The action `disk`
decides about the file writes of the workers of the run.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import signal
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ....node import processes
from ....node import system_calls as kernel

if TYPE_CHECKING:
    from ....node.rank_process import Worker
    from .actions import Actions

_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_NOTICE = struct.Struct("QIIiIQ6Q")
_ANSWER = struct.Struct("QqiI")
_LONGEST_S = 3600.0


class _Calls(NamedTuple):
    """Numbers of system calls."""

    writes: dict[int, int]
    """System calls that use disk space -> the index of the argument with the file."""
    syncs: tuple[int, ...]


_CALLS = {
    "x86_64": _Calls({1: 0, 18: 0, 20: 0, 40: 0, 285: 0, 296: 0, 326: 2, 328: 0}, (74, 75, 277)),
    "aarch64": _Calls({64: 0, 68: 0, 66: 0, 71: 0, 47: 0, 70: 0, 285: 2, 287: 0}, (82, 83, 84)),
}
"""write, pwrite64, writev, sendfile, fallocate, pwritev, copy_file_range and pwritev2; fsync, fdatasync and
sync_file_range."""


def start_serving(uid: int, gid: int, channel: socket.socket) -> tuple[int, int]:
    """Fork the process that serves a worker of this user, whose files it has to inspect.

    Returns:
        Its pid, and the descriptor that receives the state of the fault.
    """
    commands_r, commands_w = os.pipe2(os.O_CLOEXEC)
    agent = os.getpid()

    def work() -> None:
        processes.drop_privileges(uid, gid)
        processes.die_with_parent(agent)  # dropping privileges has undone that
        _serve(channel, commands_r)

    pid = processes.fork_helper(work, keep=(channel.fileno(), commands_r))
    channel.close()
    os.close(commands_r)
    os.set_blocking(commands_w, False)
    return pid, commands_w


def install_filter(listener: socket.socket) -> None:
    """In a worker: filter its writes from now on. If the kernel refuses that, the serving process ends."""
    with listener:
        if (fd := _listen()) >= 0:
            socket.send_fds(listener, [b"."], [fd])
            os.close(fd)


def _listen() -> int:
    """Return the descriptor of writes of this process and its children; -1: the kernel refuses it."""
    machine, calls = kernel.this_machine(), _CALLS.get(os.uname().machine)
    if machine is None or calls is None:
        return -1
    watched = (*calls.writes, *calls.syncs)
    checks = [(kernel.EQUAL, len(watched) - index, 0, number) for index, number in enumerate(watched)]
    program = [
        *(
            (kernel.LOAD, 0, 0, kernel.MACHINE_AT),
            (kernel.EQUAL, 0, len(watched) + 1, machine.machine),
            (kernel.LOAD, 0, 0, kernel.NUMBER_AT),
        ),
        *(*checks, (kernel.RETURN, 0, 0, kernel.ALLOW), (kernel.RETURN, 0, 0, kernel.NOTIFY)),
    ]
    return kernel.set_filter(machine, program, kernel.NEW_LISTENER)


def _serve(channel: socket.socket, commands: int) -> NoReturn:
    """Answer every write until no process is left that could write, or the agent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _, fds, _, _ = socket.recv_fds(channel, 1, 1)
    if not fds:
        os._exit(1)
    (listener,), rest = fds, b""

    def send(answer: bytes) -> None:
        with suppress(OSError):  # the writer has ended, or was interrupted
            fcntl.ioctl(listener, _SEND, bytearray(answer))

    server, poll = Server(_CALLS[os.uname().machine], send), select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(commands, select.POLLIN)
    while True:
        ready = dict(poll.poll(server.patience_s() * 1000))
        if commands in ready:
            if not (chunk := os.read(commands, 4096)):
                os._exit(0)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                server.apply(json.loads(line))
        if ready.get(listener, 0) & select.POLLIN:
            notice = bytearray(_NOTICE.size)
            with suppress(OSError):  # the writer has ended
                fcntl.ioctl(listener, _RECEIVE, notice)
                server.handle(bytes(notice))
        elif listener in ready:
            os._exit(0)
        server.release_due()


class Server:
    """Decides on writes.

    Args:
        calls: Numbers of system calls.
        send: Sends an answer.
    """

    def __init__(self, calls: _Calls, send: Callable[[bytes], None]) -> None:
        self._calls, self._send = calls, send
        self._full = False
        self._delay_s = 0.0
        self._waiting: list[tuple[float, int]] = []
        """Monotonic time at which each write may continue, and its identity."""

    def apply(self, state: dict[str, object]) -> None:
        """Apply this state to writes from now on; delayed writes continue at once if it has no delay."""
        self._full, self._delay_s = bool(state.get("full")), float(str(state.get("delay_s", 0.0)))
        if not self._delay_s:
            self._waiting = [(0.0, identity) for _, identity in self._waiting]

    def handle(self, notice: bytes) -> None:
        """Answer a write, or delay it."""
        identity, pid, _, number, _, _, *arguments = _NOTICE.unpack(notice)
        position = self._calls.writes.get(number)
        on_disk = (self._full or self._delay_s > 0) and is_on_disk(pid, arguments[position or 0] & 0xFFFFFFFF)
        if on_disk and self._full and position is not None:
            self._send(_ANSWER.pack(identity, 0, -errno.ENOSPC, 0))
        elif on_disk and self._delay_s:
            self._waiting.append((time.monotonic() + self._delay_s, identity))
        else:
            self._send(_ANSWER.pack(identity, 0, 0, _CONTINUE))

    def patience_s(self) -> float:
        """Return the seconds until the next write may continue."""
        now = time.monotonic()
        return max(0.0, min((due - now for due, _ in self._waiting), default=_LONGEST_S))

    def release_due(self) -> None:
        """Let the writes continue that are due."""
        now, waiting, self._waiting = time.monotonic(), self._waiting, []
        for due, identity in waiting:
            if due <= now:
                self._send(_ANSWER.pack(identity, 0, 0, _CONTINUE))
            else:
                self._waiting.append((due, identity))


def is_on_disk(pid: int, fd: int) -> bool:
    """Return whether a descriptor of a process is a regular file on a disk; shared memory is not."""
    path = f"/proc/{pid}/fd/{fd}"
    with suppress(OSError):
        name = os.readlink(path)
        shared = name.startswith("/memfd:") or os.path.dirname(name) == "/dev/shm"
        return stat.S_ISREG(os.stat(path).st_mode) and not shared
    return False


def apply_disk(actions: Actions, parameters: Mapping[str, Any]) -> None:
    """Add `{"full": true}` or `{"delay_s": 0.1}` to the state of the fault."""
    if actions.run is None:
        raise ValueError("no run uses the node, so no rank writes files")
    running = [worker for worker in actions.run.workers if worker.rank >= 0 and worker.is_running]
    if not any("sidecar" in worker.ends for worker in running):
        raise ValueError("the lab sees writes of ranks only in a run whose scenario has a disk fault")
    actions.run.disk.update(parameters)
    if not _send_state(running, actions.run.disk):
        actions.run.disk.clear()
        raise ValueError("the kernel refuses seccomp's user notification, which shows writes of ranks")


def undo_disk(actions: Actions, parameters: Mapping[str, Any]) -> None:
    """Remove keys from the state of the fault."""
    if actions.run is not None:
        for key in parameters:
            actions.run.disk.pop(key, None)
        _send_state(actions.run.workers, actions.run.disk)


def inspect_disk(actions: Actions, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of the fault."""
    now = {} if actions.run is None else actions.run.disk
    return {"in_force": parameters.items() <= now.items(), **now}


def _send_state(workers: Iterable[Worker], state: Mapping[str, Any]) -> bool:
    """Send the state to the processes that serve workers; return whether each of them got it."""
    delivered = True
    for worker in workers:
        try:
            os.write(worker.ends.get("sidecar", -1), json.dumps(state).encode() + b"\n")
        except OSError:
            delivered = False
    return delivered
