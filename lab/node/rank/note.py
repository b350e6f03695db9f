"""Statements of a worker to its agent: notes of its script, the error of the script, and failed threads.

`lab.note` works anywhere: inside a run the value goes to the agent; outside it is printed.
"""

from __future__ import annotations

import json
import math
import os
import socket
import sys
import threading
import time
import types
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from ..hooks import hooks
from ..messages import wire
from ..messages.agent import Note, Raised, Statement, ThreadRaised
from ..statement import SOCKET_VARIABLE, problem_with

LIMIT_BYTES = 128 * 1024
"""Largest note as JSON: it has to fit into one datagram."""
_MOST_THREADS = 20
"""Limit for the reported threads that ended by an error: a script may start thread after thread."""


def record_note(name: str, value: Any) -> None:
    """Record a value under a name.

    Args:
        name: name of the value; a scenario's `expect: notes:` refers to it.
        value: a number, string, list, dict, tensor, or array of any shape; tensors become (nested) lists, complex
            numbers `[real, imaginary]`.

    Raises:
        ValueError: the value is larger than 128 KiB as JSON, nested more than 100 deep, or holds a number beyond 1e300.
        TypeError: the value, or something in it, has no JSON form.
    """
    plain = to_plain(value)
    if problem := problem_with(plain):
        raise ValueError(f"note {name!r} {problem}")
    rank = int(os.environ.get("RANK", "0"))
    try:
        send_statement(os.environ[SOCKET_VARIABLE], Note(rank=rank, time=time.time(), name=str(name), value=plain))
    except (KeyError, OSError):  # outside a run, or its agent has ended
        print(f"note rank={rank} {name}={json.dumps(plain)}", flush=True)
        return
    # If the script imports an installed lab, the worker has a second copy of the hooks.
    for action in getattr(sys.modules.get("labnode.node.hooks"), "hooks", hooks)("noted"):
        action(str(name), plain)


note = record_note
"""The name that scripts use: `lab.note`."""


def send_statement(path: str, message: Statement, fds: Sequence[int] = ()) -> None:
    """Send one datagram to the agent of this node, with descriptors."""
    data = wire.encode_message(message)
    if len(data) > LIMIT_BYTES:
        raise ValueError(
            f"{wire.kind_of(message)} {getattr(message, 'name', '')!r} has {len(data):,} bytes as JSON; "
            f"allowed: {LIMIT_BYTES:,}. Note a summary (shape, norm, a slice) instead"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.connect(path)
        socket.send_fds(channel, [data], fds)


def to_plain(value: Any) -> Any:
    """Return a value as JSON data; floats that JSON does not have become "nan", "inf", and "-inf".

    Raises:
        TypeError: there is no JSON form.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, str)):  # an enum, for instance
        return str(value) if isinstance(value, str) else int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, complex):
        return [to_plain(value.real), to_plain(value.imag)]
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((to_plain(item) for item in value), key=repr)
    if hasattr(value, "detach"):  # a tensor, which NumPy may not have a type for, such as bfloat16
        value = value.detach().cpu().resolve_conj()
    if hasattr(value, "tolist"):
        return to_plain(value.tolist())
    if hasattr(value, "__fspath__"):
        return os.fspath(value)
    if type(value).__module__ == "torch":  # dtype, device, Size ...
        return str(value)
    raise TypeError(f"a note cannot hold {type(value).__name__}: use numbers, strings, lists, dicts, or tensors")


def describe_error(rank: int, error: BaseException) -> Raised:
    """Return the report of a script's error."""
    import traceback  # not at the top: `import lab` has this module, too

    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return Raised(rank, time.time(), error=render_error(error), traceback=text[-60_000:])


def render_error(error: BaseException) -> str:
    """Return an error as one text: `ValueError: no labels`; it never raises, whatever the error's class does."""
    name = type(error).__qualname__
    if type(error).__module__ not in ("builtins", "__main__"):
        name = f"{type(error).__module__}.{name}"
    try:
        return f"{name}: {error}"[:4000]
    except Exception:  # its own __str__; the text is that of tracebacks
        return f"{name}: <exception str() failed>"


_removed: list[Any] = []
"""Parts of tracebacks. They last until the process ends: once a GPU has failed, freeing a tensor can abort it."""


def without_frames(error: BaseException, own: tuple[str, ...]) -> BaseException:
    """Return the error, and its causes and contexts, without the frames of files whose paths begin like these."""
    waiting: list[BaseException | None] = [error]
    visited: set[int] = set()
    while waiting:
        if (current := waiting.pop()) is None or id(current) in visited:
            continue
        visited.add(id(current))
        kept, entry = list[types.TracebackType](), current.__traceback__
        while entry is not None:
            (_removed if entry.tb_frame.f_code.co_filename.startswith(own) else kept).append(entry)
            entry = entry.tb_next
        for entry, following in zip(kept, [*kept[1:], None]):
            entry.tb_next = following
        current.__traceback__ = kept[0] if kept else None
        waiting += [current.__cause__, current.__context__]
    return error


def line_in(folder: str, frames: Iterable[tuple[types.FrameType, int]]) -> str:
    """Return the first of these frames in a folder, with its line, as `file:line`; empty if there is none."""
    inside = os.path.join(folder, "")
    lines = ((frame.f_code.co_filename, line) for frame, line in frames)
    return next((f"{path[len(inside) :]}:{line}" for path, line in lines if path.startswith(inside)), "")


def report_threads(rank: int, folder: str, note_socket: str) -> None:
    """From now on report threads that end by an error: Python only prints the error, and the script continues."""
    import traceback

    printed, left = threading.excepthook, [_MOST_THREADS]
    process = os.getpid()

    def excepthook(failure: Any) -> None:
        printed(failure)
        error = failure.exc_value
        if error is None or isinstance(error, SystemExit) or os.getpid() != process or not left[0]:
            return
        left[0] -= 1
        name = str(failure.thread.name if failure.thread is not None else "")[:200]
        at = line_in(folder, reversed([*traceback.walk_tb(error.__traceback__)]))
        with suppress(OSError, ValueError):  # the agent has ended
            raised = ThreadRaised(rank, time.time(), thread=name, error=render_error(error), at=at)
            send_statement(note_socket, raised)

    threading.excepthook = excepthook
