"""Fault actions: what an agent does to its node, undoes, or inspects, when the lab asks for it.

The module of the action NAME, which `ACTIONS` names, has `apply_NAME(context, said)`, `undo_NAME` and `look_NAME`; one
that is missing has nothing to do. Each returns plain data, and raises ValueError or OSError, with a sentence, where it
cannot; done twice it is no error. Those in `STAYING` are done by one process, which is forked for the first of them and
stays: the agent has one thread, and many to serve.

Here are those for which the standard library is enough:

- `signal`: the worker of a rank gets one, and is looked at.
- `loader`: a process that loads data for a rank is killed.
- `shutdown`: the workers of a node get SIGTERM, and after a while the agent ends, and the node with it.
- `hog`: a process of the agent eats the memory of its container, until as little is left as asked for.
- `cable`: the interfaces of a node go down, and come up again with the addresses and routes that they had.
- `library`: the process that makes links is lent pyroute2, of which it then imports what it needs. No image has to have
  it, no file is written, and workers do not see it: it is in the memory of that one process.
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
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Union

from ....node import processes
from ....node.messages import wire
from ....node.messages.agent import Config, Do, Done, LookAt, Undo
from ....node.messages.wire import Connection

if TYPE_CHECKING:
    from ....node.agent import Agent
    from ....node.noderun import NodeRun
    from ....node.rank_process import Worker

DEADLINE_S = 30.0
"""A process that has not finished an action by then is killed."""
Asked = Union[Do, Undo, LookAt]
Said = Mapping[str, Any]
Answer = dict[str, Any]
_FUNCTIONS = {Do: "apply", Undo: "undo", LookAt: "look"}
_READ_BYTES = 1 << 16


class Context(NamedTuple):
    """What an action may know of where it is done."""

    config: Config
    """Of the node."""
    run: NodeRun | None
    """The run that has the node; None: no run."""
    hogs: set[int]
    """Processes that eat memory, whatever runs come and go."""


class Actions:
    """The fault actions of one agent, see `lab.node.hooks`.

    Args:
        config: of its node.
        connections: those that it has; an answer to one that is gone is not sent.
        run: returns the run that has the node now.
    """

    def __init__(self, config: Config, connections: Collection[Connection], run: Callable[[], NodeRun | None]) -> None:
        self._config = config
        self._connections = connections
        self._run = run
        self._hogs: set[int] = set()
        self.actions = dict.fromkeys((Do, Undo, LookAt), self.take)
        self._waiting: list[tuple[Connection, Asked]] = []
        """Requests for the process that stays; it is at the first one, where it has a deadline."""
        self._until = 0.0
        """Monotonic time of that deadline; 0: it has nothing to do."""
        self._pid = 0
        """Of that process; 0: there is none."""
        self._line: socket.socket | None = None
        self._reader = wire.LineReader()

    @property
    def pids(self) -> set[int]:
        """The processes that do something, or wait to."""
        return self._hogs | ({self._pid} if self._pid else set())

    @property
    def busy(self) -> bool:
        """Whether something is being done."""
        return bool(self._hogs or self._until)

    def take(self, connection: Connection, asked: Asked) -> None:
        """Do what is asked for, or have it done, and answer."""
        package: Any = sys.modules[__package__]
        if asked.deed.rpartition(".")[2] in package.STAYING:
            self._waiting.append((connection, asked))
            self._begin_next()
        else:
            self._answer(connection, self._perform(asked))

    def register(self, selector: selectors.BaseSelector) -> None:
        """Have a selector wait until the process has finished an action, or has ended."""
        if self._line is not None:
            selector.register(self._line, selectors.EVENT_READ)

    def pass_on(self, ready: Collection[int]) -> None:
        """Answer what was done; end what takes too long."""
        late = 0 < self._until < time.monotonic()
        if self._line is None or not (late or self._line.fileno() in ready):
            return
        chunk, wrong = b"", "the process that was to do it was killed"
        if late:
            wrong = f"it took longer than {DEADLINE_S:g} s"
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        else:
            with suppress(OSError):  # it has ended before it read what it was asked
                chunk = self._line.recv(_READ_BYTES)
        answers: list[Any] = [*self._reader.feed(chunk)]
        if not chunk:
            self._line.close()
            os.waitpid(self._pid, 0)
            self._line, self._pid, self._reader = None, 0, wire.LineReader()
            answers = [Done("", {}, wrong)] if self._until else []
        for done in answers:
            connection, asked = self._waiting.pop(0)
            self._until = 0.0
            self._answer(connection, done._replace(id=asked.id, run=asked.run))
        self._begin_next()

    def _begin_next(self) -> None:
        if self._until or not self._waiting:
            return
        if self._line is None:
            self._line, its = socket.socketpair()
            agent, self._pid = os.getpid(), os.fork()
            if self._pid == 0:
                self._serve(its, agent)
            its.close()
        self._until = time.monotonic() + DEADLINE_S
        with suppress(OSError):  # it has just been killed, which is seen as any other end of it
            self._line.sendall(wire.encode(self._waiting[0][1]))

    def _serve(self, line: socket.socket, agent: int) -> None:
        try:
            processes.leave_agent_behind(-1, 2, 2, keep=(line.fileno(),))
            processes.die_with_parent(agent)
            for request in line.makefile("rb"):
                asked: Any = wire.decode(request)
                line.sendall(wire.encode(self._perform(asked)))
        finally:
            os._exit(0)

    def _perform(self, asked: Asked) -> Done:
        """Return what the action found, and what was wrong."""
        package: Any = sys.modules[__package__]
        feature, _, name = asked.deed.rpartition(".")
        answer: Answer = {}
        wrong = "" if feature == "faults" and name in package.ACTIONS else f"an agent knows no deed {asked.deed!r}"
        if name in _WITH_LIBRARY and not lenders:
            wrong = wrong or LIBRARY_LACKING
        try:
            if not wrong:
                module = import_module(f".{package.ACTIONS[name]}", __package__)
                function = getattr(module, f"{_FUNCTIONS[type(asked)]}_{name}", lambda *_: None)
                answer = function(Context(self._config, self._run(), self._hogs), asked.said) or {}
        except (ValueError, OSError) as error:
            wrong = str(error)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        return Done(asked.id, answer, wrong, asked.run)

    def _answer(self, connection: Connection, done: Done) -> None:
        if connection in self._connections:
            connection.send(done)


def extend(agent: Agent) -> Actions:
    """Return the fault actions of an agent."""
    return Actions(agent.config, agent.connections, lambda: agent.run)


# -- signal


def apply_signal(context: Context, said: Said) -> Answer:
    """Send it."""
    worker = worker_of(context, said["rank"])
    os.kill(worker.pid, signal.Signals[said["name"]])
    return {"pid": worker.pid}


def undo_signal(context: Context, said: Said) -> Answer:
    """Let the worker go on, if it is there."""
    with suppress(ValueError, ProcessLookupError):
        os.kill(worker_of(context, said["rank"]).pid, signal.SIGCONT)
    return {}


def look_signal(context: Context, said: Said) -> Answer:
    """The state of its process as the kernel has it, such as `S` or `T`; empty: it has ended."""
    with suppress(ValueError):
        return {"state": _state(worker_of(context, said["rank"]).pid)}
    return {"state": ""}


def worker_of(context: Context, rank: int) -> Worker:
    """The running worker of a rank.

    Raises:
        ValueError: there is none.
    """
    for worker in reversed(context.run.workers if context.run is not None else ()):
        if worker.rank == rank and worker.is_running:
            return worker
    raise ValueError(f"no worker of rank {rank} runs here now")


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


def apply_loader(context: Context, said: Said) -> Answer:
    """Kill one."""
    rank, number = said["rank"], said["worker"]
    loaders = _loaders(worker_of(context, rank).pid)
    if not loaders:
        raise ValueError(f"rank {rank} has no process that loads data now")
    if number >= len(loaders):
        raise ValueError(f"rank {rank} has {len(loaders)} processes that load data, none of them number {number}")
    os.kill(loaders[number], signal.SIGKILL)
    until = time.monotonic() + _GONE_S
    while _state(loaders[number]) and time.monotonic() < until:
        time.sleep(0.001)
    return {"pid": loaders[number]}


def look_loader(context: Context, said: Said) -> Answer:
    """How many there are."""
    with suppress(ValueError):
        return {"left": len(_loaders(worker_of(context, said["rank"]).pid))}
    return {"left": 0}


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


def apply_shutdown(context: Context, said: Said) -> Answer:
    """Begin with it; the timer is not taken over by those that are forked."""
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    signal.setitimer(signal.ITIMER_REAL, float(said["grace_s"]))
    for worker in context.run.workers if context.run is not None else ():
        worker.signal_all(signal.SIGTERM)
    return look_shutdown(context, said)


def undo_shutdown(context: Context, said: Said) -> Answer:
    """Call it off; what has ended has ended."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    return look_shutdown(context, said)


def look_shutdown(context: Context, said: Said) -> Answer:
    """Whether it has begun."""
    return {"begun": signal.getitimer(signal.ITIMER_REAL)[0] > 0}


# -- hog

_UNLIMITED_BYTES = 1 << 60
_BITE_BYTES = 32 << 20
_PAGE_BYTES = mmap.PAGESIZE
_PAUSE_S = 0.01
_CGROUPS = (
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)
"""Files of a cgroup, version 2 and 1: its limit, what is used of it, and for what."""


def apply_hog(context: Context, said: Said) -> Answer:
    """Begin to eat; `leave_bytes` says what to leave."""
    if left_bytes() is None:
        raise ValueError("its memory has no limit of its own that could be eaten up")
    undo_hog(context, said)
    agent, pid = os.getpid(), os.fork()
    if pid == 0:
        try:
            processes.leave_agent_behind(-1, 2, 2, keep=())
            processes.die_with_parent(agent)
            _eat(said["leave_bytes"])
        finally:
            os._exit(1)
    context.hogs.add(pid)
    return look_hog(context, said)


def undo_hog(context: Context, said: Said) -> Answer:
    """Give everything back."""
    for pid in context.hogs:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    context.hogs.clear()
    return {}


def look_hog(context: Context, said: Said) -> Answer:
    """Whether something eats, and what is left."""
    return {"eats": bool(context.hogs), "left_bytes": left_bytes()}


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


def apply_cable(context: Context, said: Said) -> Answer:
    """Take every interface but the loopback down.

    Raises:
        OSError: this agent may not do that.
    """
    return _switch_interfaces(up=False)


def undo_cable(context: Context, said: Said) -> Answer:
    """Take every interface up that is down, with its routes.

    Raises:
        OSError: this agent may not do that.
    """
    return _switch_interfaces(up=True)


def look_cable(context: Context, said: Said) -> Answer:
    """Which interfaces are up, and which are down."""
    return _switch_interfaces(up=None)


def _switch_interfaces(*, up: bool | None) -> Answer:
    """Take interfaces up or down; None: leave them. Returns the names of those that are up, and down, then."""
    states: Answer = {"up": [], "down": []}
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
            states["up" if flags & _UP else "down"].append(name)
    return states


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


# -- library

LIBRARY = "pyroute2"
LIBRARY_LACKING = f"it has no {LIBRARY} yet"
"""Said by whoever needs it first; then it is to be lent, and the request made again."""
_WITH_LIBRARY = ("link_probe", "links")
lenders: list[Any] = []


def apply_library(_: Context, said: Said) -> Answer:
    """Import it from memory from now on, in the place of one that the image may have.

    Args:
        said: `files`, its text by path.
    """
    from ....node.lent import Lender, Lent

    lender = Lender(lambda _: None)
    lender.keep(Lent(LIBRARY, said["files"], {}))
    lenders.append(lender)
    sys.meta_path.insert(0, lender)
    return {}
