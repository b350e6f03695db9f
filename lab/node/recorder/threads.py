"""The `threads` line: calls come from several threads, so that their order is not that of the program."""

from __future__ import annotations

import functools
import threading
from types import ModuleType
from typing import Any

from . import marks
from .journal import journal

_CALLS = ("send", "recv", "recv_anysource", "barrier", "monitored_barrier")
"""Methods of process groups that hand out no handles of the script's: `handles` attends to the others."""
_told = False


def watch(module: ModuleType) -> None:
    """Have it told of these methods too."""
    watch_group(module.ProcessGroup)


def watch_group(kind: Any) -> None:
    """Have it told of these methods of groups of this class."""
    for name in _CALLS:
        if hasattr(kind, name):
            setattr(kind, name, _telling(getattr(kind, name)))


def tell() -> None:
    """Say once that a call is made by another thread than the first one of the script."""
    global _told
    if not _told and threading.get_ident() != threading.main_thread().ident and journal.on:
        _told = True
        journal.add("threads")


def _telling(method: Any) -> Any:
    @functools.wraps(method)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        tell()
        return method(self, *arguments, **named)

    return marks.unseen(wrapper)
