"""The deed `disk`: what the workers of the run write to files is refused, or takes longer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import write_filter

if TYPE_CHECKING:
    from ....node.noderun import NodeRun
    from .deeds import Context


def apply(context: Context, said: Mapping[str, Any]) -> dict[str, Any]:
    """`{"full": true}` or `{"delay_s": 0.1}`, beside what there is already."""
    if context.run is None:
        raise ValueError("no run goes on whose ranks would write")
    running = [worker for worker in context.run.workers if worker.rank >= 0 and worker.status is None]
    if not any(worker.write_fd >= 0 for worker in running):
        raise ValueError("what ranks write is seen only in a run whose scenario has a fault of a disk")
    context.run.disk.update(said)
    if not write_filter.tell([worker.write_fd for worker in running], context.run.disk):
        context.run.disk.clear()
        raise ValueError("the kernel does not let writes of its ranks be seen: it refuses seccomp's user notification")
    return {}


def undo(context: Context, said: Mapping[str, Any]) -> dict[str, Any]:
    """That is so no more."""
    if context.run is not None:
        for key in said:
            context.run.disk.pop(key, None)
        _tell(context.run)
    return {}


def look(context: Context, said: Mapping[str, Any]) -> dict[str, Any]:
    """What writes meet now."""
    return {} if context.run is None else dict(context.run.disk)


def _tell(run: NodeRun) -> None:
    write_filter.tell([worker.write_fd for worker in run.workers if worker.write_fd >= 0], run.disk)
