"""The `wait` lines: when the script waited for the handle of a call, from where, for how long, after what changes."""

from __future__ import annotations

import functools
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from . import marks, threads
from .journal import journal
from .source import source

_OWN = os.path.join(os.path.dirname(__file__), "")
_WAITS = ("wait", "get_future", "result", "synchronize", "block_current_stream")
_ASKS = ("is_completed", "is_success")
_CALLS = (
    "allreduce", "broadcast", "reduce", "allgather", "_allgather_base", "all_gather_single", "gather", "scatter",
    "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single", "alltoall", "alltoall_base", "all_to_all_single",
)  # fmt: skip
_watched_classes: set[Any] = set()
"""Classes of handles."""
_libraries: tuple[str, ...] = ()
"""Folders whose files are no scripts, beside torch's."""
_given: weakref.WeakKeyDictionary[Any, tuple[int, list[tuple[Any, int]]]] = weakref.WeakKeyDictionary()
"""Of handles that were not waited for yet: when their call began, and its tensors with the version of each."""


def watch(module: ModuleType) -> None:
    """Have waits for handles recorded, where `torch.distributed.distributed_c10d` hands out those of its class Work."""
    watch_class(module.Work)
    watch_group(module.ProcessGroup)


def watch_group(kind: Any) -> None:
    """Have the tensors of the calls of groups of this class remembered."""
    for name in _CALLS:
        if hasattr(kind, name):
            setattr(kind, name, _remembering(getattr(kind, name)))


def add_library(folder: str) -> None:
    """Say that what lies in a folder is no script, but a library that takes the place of a part of torch."""
    global _libraries
    _libraries = (*_libraries, folder)


def _remembering(method: Any) -> Any:
    """A method of process groups that remembers the tensors of the calls whose handle its caller gets."""

    @functools.wraps(method)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        threads.tell()
        if not (journal.on and arguments and getattr(arguments[-1], "asyncOp", False)):
            return method(self, *arguments, **named)
        began = time.monotonic_ns()
        work = method(self, *arguments, **named)
        try:
            tensors = [(weakref.ref(tensor), tensor._version) for tensor in _tensors(arguments[:-1])]
            _given[work] = began, tensors
            if type(work) not in _watched_classes and not type(work).__module__.startswith("torch."):  # a library's own
                watch_class(type(work))
        except (RuntimeError, TypeError):
            pass  # tensors without versions, or a handle of a kind of its own
        return work

    return marks.unseen(wrapper)


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif hasattr(value, "_version"):
        yield value


def _changed(work: Any) -> dict[str, int]:
    """When the call of a handle began, if a tensor of it was changed in place since then; for the first wait only."""
    began, tensors = _given.pop(work, (0, []))
    now = [(of(), version) for of, version in tensors]
    return {"changed": began} if any(one is not None and one._version != version for one, version in now) else {}


def watch_class(work: Any) -> None:
    """Have waits for handles of this class recorded.

    Whoever takes the future of a handle waits for that, unseen, and whoever is told that a call is done need not wait:
    so these count as if the wait had been then.
    """
    _watched_classes.add(work)
    for names, watched in ((_WAITS, _watched), (_ASKS, _watched_question)):
        for name in names:
            if hasattr(work, name):
                setattr(work, name, watched(getattr(work, name)))


def _watched(method: Any) -> Any:
    @functools.wraps(method)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        if not journal.on or not _by_script():
            return method(self, *arguments, **named)
        return _waiting(lambda: method(self, *arguments, **named), **_changed(self))

    return marks.unseen(wrapper)


def _watched_question(method: Any) -> Any:
    @functools.wraps(method)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        done = method(self, *arguments, **named)
        if done and journal.on and _by_script():
            _waiting(lambda: None)
        return done

    return marks.unseen(wrapper)


def _waiting(action: Callable[[], Any], **facts: int) -> Any:
    journal.add("wait", e=0, at=source.place().get("at", ""), **facts)
    try:
        return action()
    finally:
        journal.add("wait", e=1)


def _by_script() -> bool:
    """Whether the caller's caller is not PyTorch, which waits for every call without a handle: its lines have that."""
    try:
        path = sys._getframe(2).f_code.co_filename
    except ValueError:  # C++, in a thread without any line of Python
        return False
    return not path.startswith((_folder_of_torch(), _OWN, *_libraries))


@functools.cache
def _folder_of_torch() -> str:
    return os.path.join(os.path.dirname(sys.modules["torch"].__file__ or "/"), "")
