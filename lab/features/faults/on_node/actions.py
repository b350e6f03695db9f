"""Fault actions: what an agent does to its node, undoes, or inspects, when the lab asks for it.

The module of the action NAME, which `ACTIONS` names, has `apply_NAME(actions, said)`, `undo_NAME` and `look_NAME`; one
that is missing has nothing to do. Each returns plain data, and raises ValueError or OSError, with a sentence, where it
cannot; done twice it is no error. What `look_NAME` returns says by `in_force` whether it is. Those in `SLOW` are done
by a process that is forked for it: the agent has one thread, and many to serve.

- `signal`: the worker of a rank gets one, and is looked at.
- `loader`: a process that loads data for a rank is killed.
- `shutdown`: the workers of a node get SIGTERM, and after a while the agent ends, and the node with it.
- `hog`: a process of the agent eats the memory of its container, until as little is left as asked for.
- `cable`: the interfaces of a node go down, and come up again with the addresses and routes that they had.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from ....node import processes
from ....node.messages import wire
from ....node.messages.agent import Do, Done
from ....node.messages.wire import Connection

if TYPE_CHECKING:
    from ....node.agent import Agent
    from ....node.noderun import NodeRun
    from ....node.rank_process import Worker

DEADLINE_S = 30
"""A process that has not finished an action by then is killed."""
Said = Mapping[str, Any]
Answer = dict[str, Any]


class Actions:
    """The fault actions of one agent, see `lab.node.hooks`."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.hogs: set[int] = set()
        """Processes that eat memory, whatever runs come and go."""
        self.actions = {Do: self.take}
        self._slow: dict[int, tuple[int, Connection, Do]] = {}
        """By where its answer is read: a process that does what this connection asks for."""

    @property
    def run(self) -> NodeRun | None:
        """The run that has the node now."""
        return self._agent.run

    @property
    def pids(self) -> set[int]:
        """The processes that do something."""
        return self.hogs | {pid for pid, *_ in self._slow.values()}

    def take(self, connection: Connection, asked: Do) -> None:
        """Do what is asked for, or have it done, and answer."""
        package: Any = sys.modules[__package__]
        if asked.deed.partition("_")[2] not in package.SLOW:
            self._answer(connection, self._perform(asked))
            return
        answer_r, answer_w = os.pipe2(os.O_CLOEXEC)

        def work() -> None:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(DEADLINE_S)
            os.write(answer_w, wire.encode(self._perform(asked)))

        pid = processes.fork_beside(work, keep=(answer_w,))
        os.close(answer_w)
        self._slow[answer_r] = pid, connection, asked

    def register(self, selector: selectors.BaseSelector) -> None:
        """Have a selector wait until a process has finished an action, or has ended."""
        for answer_r in self._slow:
            selector.register(answer_r, selectors.EVENT_READ)

    def pass_on(self, ready: Collection[int]) -> None:
        """Answer what was done."""
        for answer_r in self._slow.keys() & ready:
            pid, connection, asked = self._slow.pop(answer_r)
            with open(answer_r, "rb") as answer:
                done = wire.decode(answer.read())
            os.waitpid(pid, 0)
            killed = f"the process that was to do it was killed, or took longer than {DEADLINE_S} s"
            self._answer(connection, done if isinstance(done, Done) else Done(asked.id, {}, killed))

    def _perform(self, asked: Do) -> Done:
        """Return what the action found, and what was wrong."""
        package: Any = sys.modules[__package__]
        feature, _, function = asked.deed.rpartition(".")
        module = package.ACTIONS.get(function.partition("_")[2])
        answer, wrong = Answer(), ""
        if feature != "faults" or module is None:
            return Done(asked.id, {}, f"an agent knows no deed {asked.deed!r}")
        try:
            act = getattr(import_module(f".{module}", __package__), function, lambda *_: None)
            answer = act(self, asked.said) or {}
        except (ValueError, OSError) as error:
            wrong = getattr(error, "strerror", None) or str(error)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        return Done(asked.id, answer, wrong)

    def _answer(self, connection: Connection, done: Done) -> None:
        if connection in self._agent.connections:
            connection.send(done)


# -- signal


STATES = {"SIGKILL": "", "SIGSTOP": "T"}
"""The state of the process that the kernel sees to, whatever the script thinks of the signal; empty: it has ended."""


def apply_signal(actions: Actions, said: Said) -> Answer:
    """Send it."""
    worker = worker_of(actions, said["rank"])
    os.kill(worker.pid, signal.Signals[said["name"]])
    return {"pid": worker.pid}


def undo_signal(actions: Actions, said: Said) -> Answer:
    """Let the worker go on, if it is there."""
    with suppress(ValueError, ProcessLookupError):
        os.kill(worker_of(actions, said["rank"]).pid, signal.SIGCONT)
    return {}


def look_signal(actions: Actions, said: Said) -> Answer:
    """The state of its process as the kernel has it, such as `S` or `T`; empty: it has ended."""
    state = ""
    with suppress(ValueError):
        state = _state(worker_of(actions, said["rank"]).pid)
    return {"in_force": STATES.get(said.get("name", ""), state) == state, "state": state or "ended"}


def worker_of(actions: Actions, rank: int) -> Worker:
    """The running worker of a rank.

    Raises:
        ValueError: there is none.
    """
    for worker in reversed(actions.run.workers if actions.run is not None else ()):
        if worker.rank == rank and worker.is_running:
            return worker
    raise ValueError(f"no worker of rank {rank} runs now")


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:  # it has ended
        return b""


def _stat(pid: int) -> list[bytes]:
    return _read(pid, "stat").rpartition(b")")[2].split()


def _state(pid: int) -> str:
    """The letter of the state of a process; empty where it has ended."""
    return (_stat(pid) or [b""])[0].decode().strip("ZX")


# -- loader

_LOADER_NAME = b"pt_data_worker"
"""What torch calls them."""
_HELPERS = (b"resource_tracker", b"forkserver")
_GONE_S = 1.0


def apply_loader(actions: Actions, said: Said) -> Answer:
    """Kill one."""
    rank, number = said["rank"], said["worker"]
    loaders = _loaders(worker_of(actions, rank).pid)
    if not loaders:
        raise ValueError(f"rank {rank} has no process that loads data now")
    if number >= len(loaders):
        raise ValueError(f"rank {rank} has {len(loaders)} processes that load data, none of them number {number}")
    os.kill(loaders[number], signal.SIGKILL)
    until = time.monotonic() + _GONE_S
    while _state(loaders[number]) and time.monotonic() < until:
        time.sleep(0.001)
    return {"pid": loaders[number]}


def look_loader(actions: Actions, said: Said) -> Answer:
    """How many there are; the one was seen to be gone when it was killed."""
    with suppress(ValueError):
        return {"in_force": True, "left": len(_loaders(worker_of(actions, said["rank"]).pid))}
    return {"in_force": True, "left": 0}


def _loaders(worker: int) -> list[int]:
    """Processes below a worker that load data, in the order of their start; where none is called so, all of Python."""

    def program(pid: int) -> bytes:
        """How it was started: forks have this from their parent, and another Python has the same first word."""
        return _read(pid, "cmdline").partition(b"\0")[0]

    def started(pid: int) -> tuple[int, int]:
        """When it was started, in ticks; its pid where that is the same."""
        return int((_stat(pid)[19:20] or [b"0"])[0]), pid

    running = [pid for pid in processes.descendants(worker) if _state(pid)]
    named = [pid for pid in running if _read(pid, "comm").strip() == _LOADER_NAME]
    if not named:  # a torch that does not name them
        python = [pid for pid in running if program(pid) == program(worker)]
        named = [pid for pid in python if not any(word in _read(pid, "cmdline") for word in _HELPERS)]
    return sorted(named, key=started)


# -- shutdown


def apply_shutdown(actions: Actions, said: Said) -> Answer:
    """Begin with it; the timer is not taken over by those that are forked."""
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    signal.setitimer(signal.ITIMER_REAL, float(said["grace_s"]))
    for worker in actions.run.workers if actions.run is not None else ():
        if worker.is_running:
            processes.signal_session(worker.pid, signal.SIGTERM)
    return {}


def undo_shutdown(actions: Actions, said: Said) -> Answer:
    """Call it off; what has ended has ended."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    return {}


def look_shutdown(actions: Actions, said: Said) -> Answer:
    """Whether it has begun."""
    return {"in_force": signal.getitimer(signal.ITIMER_REAL)[0] > 0}


# -- hog

_UNLIMITED_BYTES = 1 << 60
_BITE_BYTES = 32 << 20
_PAGE_BYTES = mmap.PAGESIZE
_PAUSE_S = 0.01
_SLACK_BYTES = 8 << 20
"""What others free meanwhile is eaten a moment later."""
_CGROUPS = (
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)
"""Files of a cgroup, version 2 and 1: its limit, what is used of it, and for what."""


def apply_hog(actions: Actions, said: Said) -> Answer:
    """Begin to eat; `leave_bytes` says what to leave."""
    if left_bytes() is None:
        raise ValueError("its memory has no limit of its own that could be eaten up")
    undo_hog(actions, said)
    actions.hogs.add(processes.fork_beside(lambda: _eat(said["leave_bytes"])))
    return {}


def undo_hog(actions: Actions, said: Said) -> Answer:
    """Give everything back."""
    for pid in actions.hogs:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    actions.hogs.clear()
    return {}


def look_hog(actions: Actions, said: Said) -> Answer:
    """Whether something eats and as little is left as asked for, and what is left."""
    left = left_bytes() or 0
    return {"in_force": bool(actions.hogs) and left < said["leave_bytes"] + _SLACK_BYTES, "left_bytes": left}


def left_bytes() -> int | None:
    """What is left of the container's memory, with what only caches files; None: it has no limit."""
    for names in _CGROUPS:
        with suppress(OSError, ValueError):
            limit, used, stat = (_read_cgroup(name) for name in names)
            counts = dict(line.split() for line in stat.splitlines())
            cached = sum(int(counts.get(name, 0)) for name in ("inactive_file", "active_file"))
            return None if int(limit) >= _UNLIMITED_BYTES else int(limit) - int(used) + cached
    return None


def _read_cgroup(name: str) -> str:
    with open(f"/sys/fs/cgroup/{name}") as file:
        return file.read()


def _eat(leave_bytes: int) -> NoReturn:
    """Allocate all memory beyond what is to be left, for good."""
    eaten = []
    while True:
        bite = min((left_bytes() or 0) - leave_bytes, _BITE_BYTES) // _PAGE_BYTES * _PAGE_BYTES
        if bite <= 0:
            time.sleep(_PAUSE_S)
            continue
        eaten.append(mmap.mmap(-1, bite, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        for page in range(0, bite, _PAGE_BYTES):
            eaten[-1][page] = 1


# -- cable

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCADDRT = 0x8913, 0x8914, 0x890B
_UP = 1
_GATEWAY = 2
_FLAGS = struct.Struct("16sh22x")
"""`struct ifreq` of <linux/if.h>, with flags."""
_ADDRESS = struct.Struct("=HH4s8x")
"""`struct sockaddr_in`."""
_routes: dict[str, list[tuple[bytes, ...]]] = {}
"""Routes over a gateway, which the kernel forgets, of each interface that went down here: where to, gateway, mask."""


def apply_cable(actions: Actions, said: Said) -> Answer:
    """Take every interface but the loopback down.

    Raises:
        OSError: this agent may not do that.
    """
    return _switch_interfaces(up=False)


def undo_cable(actions: Actions, said: Said) -> Answer:
    """Take every interface up that is down, with its routes.

    Raises:
        OSError: this agent may not do that.
    """
    return _switch_interfaces(up=True)


def look_cable(actions: Actions, said: Said) -> Answer:
    """Whether all are down."""
    return _switch_interfaces(up=None)


def _switch_interfaces(*, up: bool | None) -> Answer:
    """Take interfaces up or down; None: leave them."""
    any_up = False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for name in sorted(filter(_is_ethernet, os.listdir("/sys/class/net"))):
            flags = int(_FLAGS.unpack(fcntl.ioctl(asking, _SIOCGIFFLAGS, _FLAGS.pack(name.encode(), 0)))[1])
            if up is not None and bool(flags & _UP) != up:
                if not up:
                    _routes[name] = _gateways(name)
                flags ^= _UP
                fcntl.ioctl(asking, _SIOCSIFFLAGS, _FLAGS.pack(name.encode(), flags))
                for route in _routes.pop(name, []) if up else ():
                    _add_route(asking, route)
            any_up = any_up or bool(flags & _UP)
    return {"in_force": not any_up}


def _is_ethernet(name: str) -> bool:
    """Neither the loopback nor one of those that the kernel makes in each namespace for tunnels."""
    try:
        with open(f"/sys/class/net/{name}/type") as file:
            return file.read().strip() == "1"
    except OSError:
        return False


def _gateways(name: str) -> list[tuple[bytes, ...]]:
    """The routes of an interface over a gateway; /proc/net/route writes an address as a number of this machine."""
    with open("/proc/net/route") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    mine = [row for row in rows if row[0] == name and int(row[3], 16) & _GATEWAY]
    return [tuple(struct.pack("=I", int(row[column], 16)) for column in (1, 2, 7)) for row in mine]


def _add_route(asking: socket.socket, addresses: tuple[bytes, ...]) -> None:
    """`struct rtentry` of <linux/route.h>: an address, a gateway, a mask, flags."""
    packed = b"".join(_ADDRESS.pack(socket.AF_INET, 0, address) for address in addresses)
    entry = struct.pack("@L", 0) + packed + struct.pack("@HhLPhPLLH", _UP | _GATEWAY, 0, 0, 0, 0, 0, 0, 0, 0)
    fcntl.ioctl(asking, _SIOCADDRT, entry.ljust(128, b"\0"))
