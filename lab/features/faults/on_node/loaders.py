"""The deed `loader`: a process that loads data for a rank is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ....node import processes
from .signalling import worker_of

if TYPE_CHECKING:
    from .deeds import Context

_NAME = "pt_data_worker"
"""What torch calls them."""
_HELPERS = (b"resource_tracker", b"forkserver")
_GONE_S = 1.0


def apply(context: Context, said: Mapping[str, Any]) -> dict[str, Any]:
    """Kill one."""
    found, number = _loaders(worker_of(context, said["rank"]).pid), said["worker"]
    if not found:
        raise ValueError(f"rank {said['rank']} has no process that loads data now")
    if number >= len(found):
        raise ValueError(f"rank {said['rank']} has {len(found)} processes that load data, none of them number {number}")
    os.kill(found[number], signal.SIGKILL)
    until = time.monotonic() + _GONE_S
    while _state(found[number]) not in ("", "Z", "X") and time.monotonic() < until:
        time.sleep(0.001)
    return {"pid": found[number]}


def undo(context: Context, said: Mapping[str, Any]) -> dict[str, Any]:
    """It stays dead."""
    return {}


def look(context: Context, said: Mapping[str, Any]) -> dict[str, Any]:
    """How many there are."""
    with suppress(ValueError):
        return {"left": len(_loaders(worker_of(context, said["rank"]).pid))}
    return {"left": 0}


def _loaders(worker: int) -> list[int]:
    """Processes below a worker that load data, in the order of their start; where none is called so, all of Python."""
    running = [pid for pid in processes.descendants(worker) if _state(pid) not in ("", "Z", "X")]
    named = [pid for pid in running if _read(pid, "comm").strip() == _NAME.encode()]
    if not named:  # a torch that does not name them
        program = _program(worker)
        python = [pid for pid in running if _program(pid) == program]
        named = [pid for pid in python if not any(word in _read(pid, "cmdline") for word in _HELPERS)]
    return sorted(named, key=_started)


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:  # it has ended
        return b""


def _program(pid: int) -> bytes:
    """How it was started: forks have this from their parent, and another Python has the same first word."""
    return _read(pid, "cmdline").partition(b"\0")[0]


def _stat(pid: int) -> list[bytes]:
    return _read(pid, "stat").rpartition(b")")[2].split()


def _state(pid: int) -> str:
    return next(iter(_stat(pid)), b"").decode()


def _started(pid: int) -> tuple[int, int]:
    """When it was started, in ticks; its pid where that is the same."""
    stat = _stat(pid)
    return (int(stat[19]) if len(stat) > 19 else 0, pid)
