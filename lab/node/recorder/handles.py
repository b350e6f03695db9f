"""Record `wait` lines: when and where the script waits for a handle, and whether it changed a tensor before that.

A `threads` line means that several threads make calls, so that their order is not the order of the program.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

from .journal import OWN_CODE, frame_in_backward, journal, source
from .patching import replace_methods, unseen, wraps_function

_WAITS = ("wait", "get_future", "result", "synchronize", "block_current_stream")
_ASKS = ("is_completed", "is_success")
CALLS = (
    "allreduce", "broadcast", "reduce", "allgather", "_allgather_base", "all_gather_single", "gather", "scatter",
    "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single", "alltoall", "alltoall_base", "all_to_all_single",
    "send", "recv", "recv_anysource", "barrier", "monitored_barrier",
)  # fmt: skip
"""Methods of process groups, most of which return handles to the script."""
_watched_classes: set[Any] = set()
"""Classes of handles whose waits are recorded."""
_libraries: list[str] = []
"""Folders of libraries: their files, like torch's, are not part of the script."""
_threads_recorded = False
_pending: weakref.WeakKeyDictionary[Any, tuple[int, list[tuple[Any, int]]]] = weakref.WeakKeyDictionary()
"""Handles before their first wait -> when their call began, and its tensors with the version of each."""


def watch_handles(module: ModuleType) -> None:
    """Record waits for the handles (class Work) that `torch.distributed.distributed_c10d` returns."""
    watch_class(module.Work)
    watch_group(module.ProcessGroup)


def watch_group(kind: Any) -> None:
    """Watch which threads call groups of this class, and remember the tensors of calls that return a handle."""
    replace_methods(kind, CALLS, _remembering)


def add_library(folder: str) -> None:
    """Treat the files of a folder as a library that replaces a part of torch, and not as the script."""
    _libraries.append(folder)


def _record_threads(*_: Any, **__: Any) -> None:
    """Write one `threads` line when a thread makes a call while the main thread does not wait for it."""
    global _threads_recorded
    here = threading.get_ident()
    is_other = not _threads_recorded and here != threading.main_thread().ident and here not in journal.threads
    if is_other and journal.on and frame_in_backward() is None:
        _threads_recorded = True
        journal.add("threads")


def _remembering(method: Any) -> Any:
    @wraps_function(method)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        _record_threads()
        began = time.monotonic_ns()
        with unseen:
            work = method(self, *arguments, **named)
        if not (journal.on and arguments and getattr(arguments[-1], "asyncOp", True)):  # a tag has no options
            return work
        try:
            _pending[work] = began, [(weakref.ref(tensor), tensor._version) for tensor in _tensors(arguments[:-1])]
            if type(work) not in _watched_classes and not type(work).__module__.startswith("torch."):  # of a library
                watch_class(type(work))
        except (RuntimeError, TypeError):
            pass  # tensors without versions, or a handle without weak references
        return work

    return wrapper


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif hasattr(value, "_version"):
        yield value


def watch_class(work: Any) -> None:
    """Record waits for handles of this class.

    A script that takes the future of a handle may wait for the future, which is not recorded. A script that polls
    `is_completed()` until it returns True does not wait. Both count as a wait at that time.
    """
    _watched_classes.add(work)
    replace_methods(work, _WAITS, _waiting)
    replace_methods(work, _ASKS, _asking)


def _waiting(method: Any) -> Any:
    @wraps_function(method)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        with unseen:
            if not journal.on or not _is_called_by_script():
                return method(self, *arguments, **named)
            began, tensors = _pending.pop(self, (0, []))  # a change counts for the first wait only
            now = [(of(), version) for of, version in tensors]
            changed = any(one is not None and one._version != version for one, version in now)
            journal.add("wait", e=0, at=source.line(), **({"changed": began} if changed else {}))
            try:
                return method(self, *arguments, **named)
            finally:
                journal.add("wait", e=1)

    return wrapper


def _asking(method: Any) -> Any:
    @wraps_function(method)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        done = method(self, *arguments, **named)
        if done and journal.on and _is_called_by_script():
            journal.add("wait", e=0, at=source.line())
            journal.add("wait", e=1)
        return done

    return wrapper


def _is_called_by_script() -> bool:
    """Return whether the caller's caller is not PyTorch; the lines of a call already contain PyTorch's own waits."""
    try:
        path = sys._getframe(2).f_code.co_filename
    except ValueError:  # C++ calls, in a thread without Python frames
        return False
    return not path.startswith((_folder_of_torch(), *OWN_CODE, *_libraries))


@cache
def _folder_of_torch() -> str:
    return os.path.join(os.path.dirname(sys.modules["torch"].__file__ or "/"), "")
