"""Every write of a worker is seen, and can be refused or slowed down: a seccomp filter whose listener a process serves.

It works in any image, needs no privilege, and holds for what the worker starts too. What is written to a file that is
mapped into memory is not seen. Only runs that mean to break a disk have it: each write takes 20 us longer. The
action `disk` says what happens to what the workers of the run write to files.
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
    """Those that take room on a disk -> which argument is the file."""
    syncs: tuple[int, ...]


_CALLS = {
    "x86_64": _Calls({1: 0, 18: 0, 20: 0, 40: 0, 285: 0, 296: 0, 326: 2, 328: 0}, (74, 75, 277)),
    "aarch64": _Calls({64: 0, 68: 0, 66: 0, 71: 0, 47: 0, 70: 0, 285: 2, 287: 0}, (82, 83, 84)),
}
"""write, pwrite64, writev, sendfile, fallocate, pwritev, copy_file_range and pwritev2; fsync, fdatasync and
sync_file_range."""


def start_serving(uid: int, gid: int, channel: socket.socket) -> tuple[int, int]:
    """Fork the process that is going to serve a worker of this user, whose files it has to know.

    Returns:
        Its pid, and where it is told what to do with writes.
    """
    commands_r, commands_w = os.pipe2(os.O_CLOEXEC)
    agent = os.getpid()

    def work() -> None:
        processes.drop_privileges(uid, gid)
        processes.die_with_parent(agent)  # dropping them took that back
        _serve(channel, commands_r)

    pid = processes.fork_helper(work, keep=(channel.fileno(), commands_r))
    channel.close()
    os.close(commands_r)
    os.set_blocking(commands_w, False)
    return pid, commands_w


def install_filter(listener: socket.socket) -> None:
    """In a worker: have its writes seen from now on. Where the kernel refuses that, nobody serves them."""
    with listener:
        fd = _listen()
        if fd >= 0:
            socket.send_fds(listener, [b"."], [fd])
            os.close(fd)


def _listen() -> int:
    """A descriptor at which the writes of this process, and of those that it starts, are told; -1: that cannot be."""
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
    """Answer every write until nobody is left that could make one, or the agent has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _, fds, _, _ = socket.recv_fds(channel, 1, 1)
    if not fds:
        os._exit(1)
    (listener,), rest = fds, b""

    def send(answer: bytes) -> None:
        with suppress(OSError):  # whoever wrote has ended, or was interrupted
            fcntl.ioctl(listener, _SEND, bytearray(answer))

    server, poll = Server(_CALLS[os.uname().machine], send), select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(commands, select.POLLIN)
    while True:
        ready = dict(poll.poll(server.patience_s() * 1000))
        if commands in ready:
            chunk = os.read(commands, 4096)
            if not chunk:
                os._exit(0)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                server.apply(json.loads(line))
        if ready.get(listener, 0) & select.POLLIN:
            notice = bytearray(_NOTICE.size)
            with suppress(OSError):  # whoever wrote has ended
                fcntl.ioctl(listener, _RECEIVE, notice)
                server.handle(bytes(notice))
        elif listener in ready:
            os._exit(0)
        server.release_due()


class Server:
    """Decides on writes.

    Args:
        calls: numbers of system calls.
        send: sends an answer.
    """

    def __init__(self, calls: _Calls, send: Callable[[bytes], None]) -> None:
        self._calls = calls
        self._send = send
        self._full = False
        self._delay_s = 0.0
        self._waiting: list[tuple[float, int]] = []
        """Monotonic time at which one may go on, and its identity."""

    def apply(self, state: dict[str, object]) -> None:
        """Do this with writes from now on; what waits goes on where nothing is slow any more."""
        self._full, self._delay_s = bool(state.get("full")), float(str(state.get("delay_s", 0.0)))
        if not self._delay_s:
            self._waiting = [(0.0, identity) for _, identity in self._waiting]

    def handle(self, notice: bytes) -> None:
        """Answer a write, or make it wait."""
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
        """For how long nothing is due."""
        now = time.monotonic()
        return max(0.0, min((due - now for due, _ in self._waiting), default=_LONGEST_S))

    def release_due(self) -> None:
        """Let those go on whose time has come."""
        now, waiting, self._waiting = time.monotonic(), self._waiting, []
        for due, identity in waiting:
            if due <= now:
                self._send(_ANSWER.pack(identity, 0, 0, _CONTINUE))
            else:
                self._waiting.append((due, identity))


def is_on_disk(pid: int, fd: int) -> bool:
    """Whether a descriptor of a process is a regular file, and no memory: of those that it shares none has a folder."""
    path = f"/proc/{pid}/fd/{fd}"
    try:
        name = os.readlink(path)
        shared = name.startswith("/memfd:") or os.path.dirname(name) == "/dev/shm"
        return stat.S_ISREG(os.stat(path).st_mode) and not shared
    except OSError:
        return False


def apply_disk(actions: Actions, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """`{"full": true}` or `{"delay_s": 0.1}`, beside what there is already."""
    if actions.run is None:
        raise ValueError("no run goes on whose ranks would write")
    running = [worker for worker in actions.run.workers if worker.rank >= 0 and worker.is_running]
    if not any("sidecar" in worker.ends for worker in running):
        raise ValueError("what ranks write is seen only in a run whose scenario has a fault of a disk")
    actions.run.disk.update(parameters)
    if not _send_state(running, actions.run.disk):
        actions.run.disk.clear()
        raise ValueError("the kernel does not let writes of its ranks be seen: it refuses seccomp's user notification")
    return {}


def undo_disk(actions: Actions, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """That is so no more."""
    if actions.run is not None:
        for key in parameters:
            actions.run.disk.pop(key, None)
        _send_state(actions.run.workers, actions.run.disk)
    return {}


def inspect_disk(actions: Actions, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What writes meet now."""
    now = {} if actions.run is None else actions.run.disk
    return {"in_force": parameters.items() <= now.items(), **now}


def _send_state(workers: Iterable[Worker], state: Mapping[str, Any]) -> bool:
    """Tell the processes that serve workers what to do with writes; whether each of them hears."""
    delivered = True
    for worker in workers:
        try:
            os.write(worker.ends.get("sidecar", -1), json.dumps(state).encode() + b"\n")
        except OSError:
            delivered = False
    return delivered
