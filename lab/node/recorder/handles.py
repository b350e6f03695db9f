"""The `wait` lines: when the script waited for the handle of a call, from which line, and for how long."""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

from . import marks
from .journal import journal
from .source import source


def watch(module: ModuleType) -> None:
    """Have waits for handles recorded, where `torch.distributed.distributed_c10d` hands out those of its class Work."""
    watch_class(module.Work)


def watch_class(work: Any) -> None:
    """Have waits for handles of this class recorded.

    Whoever takes the future of a handle waits for that, unseen: so it counts as if the wait had been then.
    """
    for name in ("wait", "get_future"):
        setattr(work, name, _watched(getattr(work, name)))


def _watched(method: Any) -> Any:
    @functools.wraps(method)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        # PyTorch itself waits for every call without a handle: its lines have that already.
        if not journal.on or sys._getframe(1).f_code.co_filename.startswith(source.hidden):
            return method(self, *arguments, **named)
        journal.add("wait", e=0, at=source.place().get("at", ""))
        try:
            return method(self, *arguments, **named)
        finally:
            journal.add("wait", e=1)

    return marks.unseen(wrapper)
