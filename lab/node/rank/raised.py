"""What a script raised, as its agent is told, without what the lab has put around the script."""

from __future__ import annotations

import time
import traceback
import types

from ..messages.agent import Raised


def raised(rank: int, error: BaseException) -> Raised:
    """What there is to tell of an error."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return Raised(rank, time.time(), told_as(error), text[-60_000:])


def told_as(error: BaseException) -> str:
    """An error as one text: `ValueError: no labels`."""
    name = type(error).__qualname__
    if type(error).__module__ not in ("builtins", "__main__"):
        name = f"{type(error).__module__}.{name}"
    return f"{name}: {error}"[:4000]


def without_frames(error: BaseException, own: tuple[str, ...]) -> BaseException:
    """The error, and those that it came from, without the frames of files whose paths begin like these."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = _without(current.__traceback__, own)
        waiting += [current.__cause__, current.__context__]
    return error


def _without(first: types.TracebackType | None, own: tuple[str, ...]) -> types.TracebackType | None:
    kept: list[types.TracebackType] = []
    while first is not None:
        if not first.tb_frame.f_code.co_filename.startswith(own):
            kept.append(first)
        first = first.tb_next
    for entry, following in zip(kept, [*kept[1:], None]):
        entry.tb_next = following
    return kept[0] if kept else None
