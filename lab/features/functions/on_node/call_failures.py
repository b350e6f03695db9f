"""What a function raised, as plain data: enough to show it where it was called as if it was raised there."""

from __future__ import annotations

import os
from types import CodeType, FrameType, TracebackType
from typing import Any

from .call import Failure, Place

_OWN = os.path.join(os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..")), "")
_LONGEST_TEXT = 60_000
_LONGEST_SHOWN = 240
_MOST_PLACES = 60
_MOST_VARIABLES = 40
_DEEPEST = 5
"""So many exceptions in a chain."""


def describe(error: BaseException, *, variables: bool = False) -> Failure:
    """An exception, with its traceback and what it came from.

    Args:
        error: the exception.
        variables: whether local variables are told as well as arguments.
    """
    return _describe(error, variables, 0, set())


def _describe(error: BaseException, variables: bool, depth: int, seen: set[int]) -> Failure:
    seen.add(id(error))

    def further(other: BaseException | None) -> Failure | None:
        if other is None or id(other) in seen or depth + 1 >= _DEEPEST:
            return None
        return _describe(other, variables, depth + 1, seen)

    cause = further(error.__cause__)
    context = further(error.__context__) if not error.__suppress_context__ else None
    notes = [_clip(str(note), _LONGEST_TEXT) for note in getattr(error, "__notes__", ())][:10]
    return Failure(
        module=str(type(error).__module__),
        kind=type(error).__qualname__,
        text=_text(error),
        places=tuple(_places(error.__traceback__, variables)),
        notes=tuple(notes),
        cause=cause,
        context=context if cause is None else None,
    )


def _text(error: BaseException) -> str:
    try:
        return _clip(str(error), _LONGEST_TEXT)
    except Exception as another:
        return f"(its text cannot be had: {type(another).__name__})"


def _places(traceback: TracebackType | None, variables: bool) -> list[Place]:
    found = []
    while traceback is not None:
        frame = traceback.tb_frame
        if not frame.f_code.co_filename.startswith((_OWN, "<frozen importlib")):
            found.append(_place(frame, traceback.tb_lineno, variables))
        traceback = traceback.tb_next
    half = _MOST_PLACES // 2
    return found if len(found) <= _MOST_PLACES else [*found[:half], *found[-half:]]


def _place(frame: FrameType, line: int | None, variables: bool) -> Place:
    code, values = frame.f_code, frame.f_locals
    arguments = [name for name in _arguments(code) if name in values]
    others = [name for name in values if name not in arguments and name.isidentifier()] if variables else []
    return Place(
        file=code.co_filename,
        line=line or code.co_firstlineno,
        function=code.co_name,
        first_line=code.co_firstlineno,
        arguments={name: _shown(values[name]) for name in arguments},
        variables={name: _shown(values[name]) for name in others[:_MOST_VARIABLES]},
        hidden=bool(values.get("__tracebackhide__") is True),
    )


def _arguments(code: CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount]


def _shown(value: Any) -> str:
    try:
        return _clip(repr(value), _LONGEST_SHOWN)
    except Exception as error:
        return f"<{type(error).__name__} in repr of a {type(value).__name__}>"


def _clip(text: str, most: int) -> str:
    half = (most - 3) // 2
    return text if len(text) <= most else f"{text[:half]}...{text[-half:]}"
