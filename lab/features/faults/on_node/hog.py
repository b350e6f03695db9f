"""The deed `hog`: a process of the agent eats the memory of its container, until as little is left as asked for."""

from __future__ import annotations

import mmap
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from ....node import processes

if TYPE_CHECKING:
    from .deeds import Context

_UNLIMITED_BYTES = 1 << 60
_BITE_BYTES = 32 << 20
_PAGE_BYTES = mmap.PAGESIZE
_PAUSE_S = 0.01
_V2, _V1 = ("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")
"""Files of a cgroup: its limit, and what is used of it."""
_CACHES = ("memory.stat", "memory/memory.stat")


def apply(context: Context, said: Mapping[str, Any]) -> dict[str, Any]:
    """Begin to eat; `left_bytes` says what to leave."""
    if left_bytes() is None:
        raise ValueError("its memory has no limit of its own that could be eaten up")
    undo(context, said)
    agent, pid = os.getpid(), os.fork()
    if pid == 0:
        try:
            processes.leave_agent_behind(-1, 2, 2, keep=())
            processes.die_with_parent(agent)
            _eat(said["left_bytes"])
        finally:
            os._exit(1)
    context.hogs.add(pid)
    return look(context, said)


def undo(context: Context, said: Mapping[str, Any]) -> dict[str, Any]:
    """Give everything back."""
    for pid in context.hogs:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    context.hogs.clear()
    return {}


def look(context: Context, said: Mapping[str, Any]) -> dict[str, Any]:
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
            found = dict(line.split() for line in file)
            return int(found.get("inactive_file", 0)) + int(found.get("active_file", 0))
    return 0


def _eat(leave_bytes: int) -> NoReturn:
    """Take what there is beyond, for good."""
    eaten = []
    while True:
        bite = min((left_bytes() or 0) - leave_bytes, _BITE_BYTES) // _PAGE_BYTES * _PAGE_BYTES
        if bite <= 0:
            time.sleep(_PAUSE_S)
            continue
        eaten.append(mmap.mmap(-1, bite, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        for page in range(0, bite, _PAGE_BYTES):
            eaten[-1][page] = 1
