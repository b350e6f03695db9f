"""The agent's part in holds: which triggers a worker is given, and letting those go on that are held."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from .messages.agent import Release, WorkerStart
from .rank_process import Worker


def with_triggers(start: WorkerStart, triggers: Iterable[dict[str, Any]]) -> WorkerStart:
    """A worker, with those of the run's triggers that are its own, or any rank's."""
    own = tuple(one for one in triggers if start.rank >= 0 and one.get("rank") in (None, start.rank))
    return start._replace(triggers=own) if own else start


def release(workers: Iterable[Worker], asked: Release) -> None:
    """Tell a worker that is held that it may go on, and what it has to do before."""
    line = json.dumps({"hold": asked.hold, "deed": asked.deed}).encode() + b"\n"
    for worker in workers:
        if worker.rank == asked.rank and worker.status is None and worker.hold_fd >= 0:
            with suppress(OSError):  # it has just ended
                os.write(worker.hold_fd, line)
