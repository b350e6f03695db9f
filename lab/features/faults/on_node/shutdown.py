"""The deed `shutdown`: the workers of a node get SIGTERM, and after a while the agent ends, and the node with it."""

from __future__ import annotations

import os
import signal
from typing import Any

from .deeds import Context


def apply(context: Context, said: dict[str, Any]) -> dict[str, Any]:
    """Begin with it; the timer is not taken over by those that are forked."""
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    signal.setitimer(signal.ITIMER_REAL, float(said["grace_s"]))
    for worker in context.run.workers if context.run is not None else ():
        worker.signal_all(signal.SIGTERM)
    return look(context, said)


def undo(context: Context, said: dict[str, Any]) -> dict[str, Any]:
    """Call it off; what has ended has ended."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    return look(context, said)


def look(context: Context, said: dict[str, Any]) -> dict[str, Any]:
    """Whether it has begun."""
    return {"begun": signal.getitimer(signal.ITIMER_REAL)[0] > 0}
