"""Tells of threads of a script that end by an error: Python prints it, and the script goes on without them."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import Any

from ..messages.agent import ThreadRaised
from . import note
from .raised import told_as

_MOST = 20
"""A script may start thread after thread: so many are told of."""


def tell(rank: int, folder: str, note_socket: str) -> None:
    """Tell of them from now on, beside what Python does."""
    printed, left = threading.excepthook, [_MOST]
    process = os.getpid()

    def excepthook(failure: Any) -> None:
        printed(failure)
        error = failure.exc_value
        if error is None or isinstance(error, SystemExit) or os.getpid() != process or not left[0]:
            return
        left[0] -= 1
        name = failure.thread.name if failure.thread is not None else ""
        with suppress(OSError, ValueError):  # whoever runs the script is gone
            place = _line(error, folder)
            note.send(note_socket, ThreadRaised(rank, time.time(), str(name)[:200], told_as(error), place))

    threading.excepthook = excepthook


def _line(error: BaseException, folder: str) -> str:
    inside, place, trace = os.path.join(folder, ""), "", error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if path.startswith(inside):
            place = f"{path[len(inside) :]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
