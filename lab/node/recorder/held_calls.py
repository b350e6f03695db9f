"""Calls of groups in Python that triggers watch: held before they are issued, and after they have ended."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .calls import RecordedWork
from .holds import AFTER, BEFORE, CALL, holds
from .python_group import OPERATIONS, describe


def hold_calls(kind: Any) -> None:
    """Have those methods of a class of groups held whose calls are watched; the others stay as they are."""
    for op in holds.points(CALL):
        for name in OPERATIONS.get(op, ()):
            if hasattr(kind, name):
                setattr(kind, name, _held(op, getattr(kind, name)))


def _held(op: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        nth = holds.count(CALL, op)
        edges = holds.edges(CALL, op, nth) if nth else ()
        if not edges:
            return method(self, *arguments, **named)
        brought, left = _tensors(op, (*arguments, *named.values()))
        holds.reach(CALL, op, nth, BEFORE, tensors=brought)
        if AFTER not in edges:
            return method(self, *arguments, **named)
        try:
            work = method(self, *arguments, **named)
            if work is not None:
                with suppress(Exception):  # whoever waits for it next is told
                    work.wait_ahead() if isinstance(work, RecordedWork) else work.wait()
        finally:
            holds.reach(CALL, op, nth, AFTER, tensors=left)
        return work

    return wrapper


def _tensors(op: str, given: tuple[Any, ...]) -> tuple[Any, Any]:
    """The tensors that a call takes, and those that it fills."""
    try:
        _, inputs, outputs = describe(op, given)
    except Exception:  # arguments that nobody thought of
        return (), ()
    return inputs or (), (inputs if outputs is None else outputs) or ()
