"""Let a process that a script started be a rank of one world after the other, as the processes of a pool are."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from contextlib import suppress
from functools import cache
from types import ModuleType
from typing import Any

from ....node.messages.agent import Note
from ....node.rank import joining, note
from ....node.recorder.patching import replace_function, when_imported, wraps_function
from . import THREADS

_THREADED = "torch.testing._internal.distributed.multi_threaded_pg"
_threads: dict[threading.Thread, int] = {}
"""Threads that are ranks."""


def watch_worlds() -> None:
    """Begin a new trace when this process joins another world, and report errors that it sends to other processes."""
    when_imported("torch.distributed.distributed_c10d", _watch_joining)  # again outside of what recorders wrap
    _watch_errors()


@cache
def _watch_errors() -> None:
    when_imported(_THREADED, _watch_threads)
    when_imported("multiprocessing.reduction", _watch_sending)


def _watch_joining(module: ModuleType) -> None:
    def joining_again(init: Any) -> Any:
        @wraps_function(init)
        def wrapper(*arguments: Any, **named: Any) -> Any:
            process = joining._process
            for thread in [one for one in _threads if not one.is_alive()]:
                del _threads[thread]
            if process.started and process.rank >= 0 and not (process.left or _threads or module.is_initialized()):
                last, process.rank = process.trace, -1
                process.record()
                os.close(last)
            made = init(*arguments, **named)
            current = threading.current_thread()
            is_known = current in _threads or current is threading.main_thread()
            if process.started and not is_known and process.rank >= 0:
                _threads[current] = rank = module.get_rank()
                with suppress(OSError, ValueError):
                    at = [rank, threading.get_ident()]
                    note.send_statement(process.socket, Note(rank, time.time(), name=THREADS, value=at))
            return made

        return wrapper

    replace_function(module, "init_process_group", joining_again)


def _watch_threads(module: ModuleType) -> None:
    """Report the first error that ends a thread which is a rank; it ends the other ranks, too."""
    handle = module.ProcessLocalGroup.exception_handle

    def handling(kind: Any, error: Any) -> Any:
        rank = _threads.get(threading.current_thread(), -1)
        if joining._process.started and rank >= 0 and not isinstance(error, (SystemExit, RankEnded)):
            with suppress(OSError, ValueError):
                raised = note.describe_error(rank, error)
                note.send_statement(joining._process.socket, raised)
        return handle(error)

    module.ProcessLocalGroup.exception_handle = classmethod(handling)


def report_error(error: BaseException) -> None:
    """Report an error that ends the part of this process in its world, but not the process."""
    if joining._process.started and joining._process.rank >= 0 and not _threads:
        joining._process.report(error)


class RankEnded(Exception):
    """Ends a thread that is a rank."""


def end_threads() -> bool:
    """End the threads that are ranks, as far as they return to Python; return whether there are any."""
    threads = sys.modules.get(_THREADED)
    for thread in _threads:
        if thread.is_alive():
            ident = ctypes.c_ulong(thread.ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(RankEnded))
    if threads is not None and _threads:
        threads.ProcessLocalGroup.exception_handle(RankEnded())  # others wait for them in Python
    return bool(_threads)


def forget_threads() -> bool:
    """Have the next test use new threads; return whether one did not end."""
    left = any(thread.is_alive() for thread in _threads)
    threads, cases = map(sys.modules.get, (_THREADED, "torch.testing._internal.common_distributed"))
    if threads is not None and _threads:
        threads.ProcessLocalGroup.reset()
    if cases is not None and _threads:
        while not cases.MultiThreadedTestCase.exception_queue.empty():
            cases.MultiThreadedTestCase.exception_queue.get()
    _threads.clear()
    return left


def _watch_sending(module: ModuleType) -> None:
    """Report errors that a process of a pool returns to its parent."""
    dump = module.ForkingPickler.dump

    def dumping(pickler: Any, sent: Any) -> Any:
        process = joining._process
        if process.started and process.rank >= 0:
            error, text = _error_in(sent)
            if error is not None and error.__traceback__ is not None:
                process.report(error)
            elif error is not None:
                raised = note.describe_error(process.rank, error)
                with suppress(OSError, ValueError):
                    note.send_statement(process.socket, raised._replace(traceback=text[-60_000:]))
        return dump(pickler, sent)

    module.ForkingPickler.dump = dumping


def _error_in(sent: Any) -> tuple[BaseException | None, str]:
    """Return the error in what a pool or a queue sends, and the text of its traceback if a pool has removed that."""
    if type(sent) is tuple and len(sent) == 3:  # multiprocessing.Pool: number, number, (whether it returned, value)
        sent = sent[2][1] if type(sent[2]) is tuple and len(sent[2]) == 2 and sent[2][0] is False else None
    error = getattr(sent, "exception", None) if type(sent).__name__ == "_ResultItem" else sent  # concurrent.futures
    text = str(getattr(error, "tb", "")).strip('"\n')  # both pools wrap the error with it
    error = getattr(error, "exc", error)
    return ((error.__cause__ or error) if isinstance(error, BaseException) else None), text
