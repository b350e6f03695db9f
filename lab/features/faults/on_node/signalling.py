"""The deed `signal`: the worker of a rank gets one, and is looked at."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ....node.rank_process import Worker
    from .deeds import Context


def apply(context: Context, said: Mapping[str, Any]) -> dict[str, Any]:
    """Send it."""
    worker = worker_of(context, said["rank"])
    os.kill(worker.pid, signal.Signals[said["name"]])
    return {"pid": worker.pid}


def undo(context: Context, said: Mapping[str, Any]) -> dict[str, Any]:
    """Let the worker go on, if it is there."""
    with suppress(ValueError, ProcessLookupError):
        os.kill(worker_of(context, said["rank"]).pid, signal.SIGCONT)
    return {}


def look(context: Context, said: Mapping[str, Any]) -> dict[str, Any]:
    """The state of its process as the kernel has it, such as `S` or `T`; empty: it has ended."""
    try:
        with open(f"/proc/{worker_of(context, said['rank']).pid}/stat") as file:
            state = file.read().rpartition(")")[2].split()[0]
    except (ValueError, OSError):
        state = ""
    return {"state": "" if state in "ZX" else state}


def worker_of(context: Context, rank: int) -> Worker:
    """The running worker of a rank.

    Raises:
        ValueError: there is none.
    """
    for worker in reversed(context.run.workers if context.run is not None else ()):
        if worker.rank == rank and worker.status is None:
            return worker
    raise ValueError(f"no worker of rank {rank} runs here now")
