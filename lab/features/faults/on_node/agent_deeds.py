"""Deeds of agents for which the standard library is enough; see `deeds`.

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
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from ....node import processes

if TYPE_CHECKING:
    from ....node.rank_process import Worker
    from .deeds import Context

Said = Mapping[str, Any]
Answer = dict[str, Any]


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
    state = ""
    with suppress(ValueError):
        state = _state(worker_of(context, said["rank"]).pid)
    return {"state": "" if state in ("Z", "X") else state}


def worker_of(context: Context, rank: int) -> Worker:
    """The running worker of a rank.

    Raises:
        ValueError: there is none.
    """
    for worker in reversed(context.run.workers if context.run is not None else ()):
        if worker.rank == rank and worker.status is None:
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
    return next(iter(_stat(pid)), b"").decode()


# -- loader

_LOADER_NAME = b"pt_data_worker"
"""What torch calls them."""
_HELPERS = (b"resource_tracker", b"forkserver")
_ENDED = ("", "Z", "X")
_GONE_S = 1.0


def apply_loader(context: Context, said: Said) -> Answer:
    """Kill one."""
    loaders, number = _loaders(worker_of(context, said["rank"]).pid), said["worker"]
    if not loaders:
        raise ValueError(f"rank {said['rank']} has no process that loads data now")
    if number >= len(loaders):
        raise ValueError(
            f"rank {said['rank']} has {len(loaders)} processes that load data, none of them number {number}"
        )
    os.kill(loaders[number], signal.SIGKILL)
    until = time.monotonic() + _GONE_S
    while _state(loaders[number]) not in _ENDED and time.monotonic() < until:
        time.sleep(0.001)
    return {"pid": loaders[number]}


def look_loader(context: Context, said: Said) -> Answer:
    """How many there are."""
    with suppress(ValueError):
        return {"left": len(_loaders(worker_of(context, said["rank"]).pid))}
    return {"left": 0}


def _loaders(worker: int) -> list[int]:
    """Processes below a worker that load data, in the order of their start; where none is called so, all of Python."""
    running = [pid for pid in processes.descendants(worker) if _state(pid) not in _ENDED]
    named = [pid for pid in running if _read(pid, "comm").strip() == _LOADER_NAME]
    if not named:  # a torch that does not name them
        program = _program(worker)
        python = [pid for pid in running if _program(pid) == program]
        named = [pid for pid in python if not any(word in _read(pid, "cmdline") for word in _HELPERS)]
    return sorted(named, key=_started)


def _program(pid: int) -> bytes:
    """How it was started: forks have this from their parent, and another Python has the same first word."""
    return _read(pid, "cmdline").partition(b"\0")[0]


def _started(pid: int) -> tuple[int, int]:
    """When it was started, in ticks; its pid where that is the same."""
    stat = _stat(pid)
    return (int(stat[19]) if len(stat) > 19 else 0, pid)


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
_V2, _V1 = ("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")
"""Files of a cgroup: its limit, and what is used of it."""
_CACHES = ("memory.stat", "memory/memory.stat")


def apply_hog(context: Context, said: Said) -> Answer:
    """Begin to eat; `left_bytes` says what to leave."""
    if left_bytes() is None:
        raise ValueError("its memory has no limit of its own that could be eaten up")
    undo_hog(context, said)
    agent, pid = os.getpid(), os.fork()
    if pid == 0:
        try:
            processes.leave_agent_behind(-1, 2, 2, keep=())
            processes.die_with_parent(agent)
            _eat(said["left_bytes"])
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
    for limit, used in (_V2, _V1):
        with suppress(OSError, ValueError):
            limit_bytes = _number(limit)
            return None if limit_bytes >= _UNLIMITED_BYTES else limit_bytes - _number(used) + _cached()
    return None


def _number(name: str) -> int:
    with open(f"/sys/fs/cgroup/{name}") as file:
        return int(file.read())


def _cached() -> int:
    for name in _CACHES:
        with suppress(OSError), open(f"/sys/fs/cgroup/{name}") as file:
            counts = dict(line.split() for line in file)
            return int(counts.get("inactive_file", 0)) + int(counts.get("active_file", 0))
    return 0


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
_routes: dict[str, list[tuple[bytes, bytes, bytes]]] = {}
"""Routes over a gateway, which the kernel forgets, of each interface that went down here: where to, mask, gateway."""


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
                    _add_route(asking, *route)
            states["up" if flags & _UP else "down"].append(name)
    return states


def _is_ethernet(name: str) -> bool:
    """Neither the loopback nor one of those that the kernel makes in each namespace for tunnels."""
    try:
        with open(f"/sys/class/net/{name}/type") as file:
            return file.read().strip() == "1"
    except OSError:
        return False


def _gateways(name: str) -> list[tuple[bytes, bytes, bytes]]:
    """The routes of an interface over a gateway; /proc/net/route writes an address as a number of this machine."""
    with open("/proc/net/route") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    mine = [row for row in rows if row[0] == name and int(row[3], 16) & _GATEWAY]
    packed = [[struct.pack("=I", int(row[column], 16)) for column in (1, 7, 2)] for row in mine]
    return [(to, mask, gateway) for to, mask, gateway in packed]


def _add_route(asking: socket.socket, to: bytes, mask: bytes, gateway: bytes) -> None:
    """`struct rtentry` of <linux/route.h>: an address, a gateway, a mask, flags."""
    addresses = b"".join(_ADDRESS.pack(socket.AF_INET, 0, address) for address in (to, gateway, mask))
    entry = struct.pack("@L", 0) + addresses + struct.pack("@HhLPhPLLH", _UP | _GATEWAY, 0, 0, 0, 0, 0, 0, 0, 0)
    fcntl.ioctl(asking, _SIOCADDRT, entry.ljust(128, b"\0"))


# -- library

LIBRARY = "pyroute2"
LIBRARY_LACKING = f"it has no {LIBRARY} yet"
"""Said by whoever needs it first; then it is to be lent, and the request made again."""
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
