"""The `wait` lines: when the script waited for the handle of a call, from which line, and for how long."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import marks
from .journal import journal
from .source import source

_OWN = os.path.join(os.path.dirname(__file__), "")
_WAITS = ("wait", "get_future", "result", "synchronize", "block_current_stream")
_ASKS = ("is_completed", "is_success")


def watch(module: ModuleType) -> None:
    """Have waits for handles recorded, where `torch.distributed.distributed_c10d` hands out those of its class Work."""
    watch_class(module.Work)


def watch_class(work: Any) -> None:
    """Have waits for handles of this class recorded.

    Whoever takes the future of a handle waits for that, unseen, and whoever is told that a call is done need not wait:
    so these count as if the wait had been then.
    """
    for names, watched in ((_WAITS, _watched), (_ASKS, _watched_question)):
        for name in names:
            if hasattr(work, name):
                setattr(work, name, watched(getattr(work, name)))


def _watched(method: Any) -> Any:
    @functools.wraps(method)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        if not journal.on or _is_torch(sys._getframe(1).f_code.co_filename):
            return method(self, *arguments, **named)
        return _waiting(lambda: method(self, *arguments, **named))

    return marks.unseen(wrapper)


def _watched_question(method: Any) -> Any:
    @functools.wraps(method)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        done = method(self, *arguments, **named)
        if done and journal.on and not _is_torch(sys._getframe(1).f_code.co_filename):
            _waiting(lambda: None)
        return done

    return marks.unseen(wrapper)


def _waiting(action: Callable[[], Any]) -> Any:
    journal.add("wait", e=0, at=source.place().get("at", ""))
    try:
        return action()
    finally:
        journal.add("wait", e=1)


def _is_torch(path: str) -> bool:
    """Whether a file is PyTorch's, which itself waits for every call without a handle: its lines have that already."""
    return path.startswith((_folder_of_torch(), _OWN))


@functools.cache
def _folder_of_torch() -> str:
    return os.path.join(os.path.dirname(sys.modules["torch"].__file__ or "/"), "")
