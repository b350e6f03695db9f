"""Wakes gloo's threads while a process group ends, which otherwise takes up to 10 ms for each other rank.

Gloo closes a connection once the thread that polls all connections has returned from its poll, and without events that
poll lasts 10 ms (`Loop::unregisterDescriptor` and `Loop::run` in gloo's `transport/tcp/loop.cc`). A signal interrupts
the poll and has no other effect; timers of the kernel send signals.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..processes import read_words

_NAME = "gloo_tcp_loop"
_SIGNAL = signal.SIGURG  # without a handler it has no effect
_EVERY_NS = 500_000
_SIGEV_THREAD_ID = 4


class _Event(ctypes.Structure):
    """`struct sigevent` of Linux: a signal for one thread."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("rest", ctypes.c_char * 44),
    )


@contextmanager
def keep_loops_awake() -> Iterator[None]:
    """Interrupt the polls of gloo's threads within this context."""
    threads, timers = _threads() if _is_unwanted() else [], list[ctypes.c_void_p]()
    # Without a handler the signal is ignored; any C function without effect will do.
    listens = bool(threads) and _handle(ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p))
    if listens:
        with suppress(AttributeError):  # another C library
            timers = [timer for thread in threads if (timer := _timer(thread)) is not None]
    try:
        yield
    finally:
        for timer in timers:
            ctypes.CDLL(None).timer_delete(timer)
        if listens and _is_unwanted():
            _handle(ctypes.c_void_p(0))


def _timer(thread: int) -> ctypes.c_void_p | None:
    """Return a timer that signals a thread periodically; None if there can be none."""
    library, timer = ctypes.CDLL(None), ctypes.c_void_p()
    event = _Event(signal=_SIGNAL, notify=_SIGEV_THREAD_ID, thread=thread)
    if library.timer_create(time.CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)) != 0:
        return None
    library.timer_settime(timer, 0, (ctypes.c_long * 4)(0, _EVERY_NS, 0, _EVERY_NS), None)
    return timer


def _is_unwanted() -> bool:
    """Return whether the script does not use the signal."""
    return signal.getsignal(_SIGNAL) is signal.SIG_DFL


def _handle(how: ctypes.c_void_p) -> bool:
    """Set a handler that is not Python's: Python warns if its own handler is removed while a signal is pending."""
    set_handler = ctypes.CDLL(None).signal
    set_handler.restype, set_handler.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)
    return bool(set_handler(_SIGNAL, how) != ctypes.c_void_p(-1).value)


def _threads() -> list[int]:
    threads = os.listdir("/proc/self/task")
    return [int(one) for one in threads if [*read_words(f"/proc/self/task/{one}/comm")] == [[_NAME]]]
