"""Let a process be a rank of one world after the other, as those of a pool are, and each of its threads a rank.

It also reports errors that a process of a pool returns to its parent, and that do not end it, and records which error a
script handles when it makes a call, such as in a `finally`.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from traceback import walk_tb
from types import ModuleType
from typing import Any

from ....node.rank import joining, note
from ....node.recorder import handles, install, phases
from ....node.recorder.journal import Journal, journal, source
from ....node.recorder.patching import call_before, call_instead, replace_function, replace_methods, when_imported

_LONGEST_ERROR = 300


def watch_worlds() -> None:
    """Watch how this process begins and ends its part in worlds, and the errors that do not end it."""
    when_imported("multiprocessing.reduction", _watch_sending)
    when_imported("torch.distributed.distributed_c10d", _watch_calls)
    if joining._process.moves:
        joining._process.watched = True
        when_imported("torch.distributed.distributed_c10d", _watch_groups)
        when_imported("torch.testing._internal.distributed.multi_threaded_pg", _watch_threads)
        threading.excepthook = call_before(lambda failure: _report(failure.exc_value))(threading.excepthook)


class _Thread(joining._Process):
    """The state of a thread that is a rank of its own."""

    def __init__(self) -> None:
        with joining._lock:
            if joining._process.stack < 0:
                joining._process.stack = joining._writes_stacks(crashes=True)
        vars(self).update(vars(joining._process))
        self.thread = threading.get_ident()
        _begin_again(self)

    def record(self) -> None:
        """Begin to record this thread."""
        self.trace = joining.make_trace()
        own = Journal()
        own.open(self.trace, rank=-1, recorder="python", torch="", values=journal.values)
        journal.threads[self.thread] = own
        phases.write_with(phases.write_phase)  # the compiled recorder does not tell threads apart


class _End:
    """Ends with a thread, while frames in the traceback of its error may keep its state."""

    def __init__(self, thread: _Thread) -> None:
        self._thread, self._pid = thread, os.getpid()

    def __del__(self) -> None:
        """Report the end of the thread."""
        if self._pid == os.getpid():
            _leave(self._thread, int(self._thread.raised))


def _watch_groups(module: ModuleType) -> None:
    def join_again(*_: Any, **__: Any) -> None:
        joining._of_thread.began = True
        in_thread = threading.get_ident() != threading.main_thread().ident
        is_rank = in_thread and type(module._world).__name__ == "ThreadLocalWorld"  # PyTorch's worlds of threads
        if is_rank and not hasattr(joining._of_thread, "process"):
            joining._of_thread.process = thread = _Thread()
            joining._of_thread.end = _End(thread)
        process = joining.current_process()
        if process.rank >= 0 and process.trace < 0:  # it has destroyed the group of an earlier world
            _leave(process, int(process.raised))
            _begin_again(process)

    def leave(destroy: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return destroy(*arguments, **named)
        finally:
            process = joining.current_process()
            if process.trace >= 0 and process.rank >= 0 and not module.is_initialized():
                _stop(process)
                if process.world_size == 1 or process.thread:  # nothing that happens later belongs to this world
                    _leave(process, int(process.raised))

    replace_function(module, "init_process_group", call_before(join_again))
    replace_function(module, "destroy_process_group", call_instead(leave))


def _begin_again(process: joining._Process) -> None:
    """Reset the state: this is no rank yet."""
    process.trace, process.rank, process.left, process.raised = -1, -1, False, False


def _stop(process: joining._Process) -> None:
    """End the recording of a world."""
    if process.thread:
        if (own := journal.threads.pop(process.thread, None)) is not None:
            own.close()
    else:
        install.stop_recording()
    if process.trace >= 0:
        os.close(process.trace)
    process.trace = -1


def _leave(process: joining._Process, code: int) -> None:
    """Report that only the rank ends."""
    _stop(process)
    process.leave(code, stays=True)


def _report(error: Any, *_: Any) -> None:
    """Report the error of a thread that is a rank."""
    process = joining.current_process()
    if process.thread and not process.raised and isinstance(error, BaseException):
        process.report(error)


def _watch_threads(module: ModuleType) -> None:
    """Report errors that PyTorch's tests catch."""
    group = module.ProcessLocalGroup
    group.exception_handle = staticmethod(call_before(_report)(group.exception_handle))


def _watch_calls(module: ModuleType) -> None:
    """Record errors that this process handles during calls."""
    replace_methods(module.ProcessGroup, handles.CALLS, call_before(_record_handled))


def _record_handled(*_: Any, **__: Any) -> None:
    error = sys.exc_info()[1]
    if error is not None and journal.on:
        at = note.line_in(source.folder, reversed([*walk_tb(error.__traceback__)]))
        journal.add("handled", error=note.render_error(error)[:_LONGEST_ERROR], at=at)


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


def report_error(error: BaseException) -> None:
    """Report an error that ends the part of this process in its world, but not the process."""
    if joining._process.started and joining._process.rank >= 0:
        joining._process.report(error)
