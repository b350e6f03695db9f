"""Report errors that a process of a pool returns to its parent, and that do not end it."""

from __future__ import annotations

from contextlib import suppress
from types import ModuleType
from typing import Any

from ....node.rank import joining, note
from ....node.recorder.patching import when_imported


def watch_errors() -> None:
    """Report errors that this process sends to other processes."""
    when_imported("multiprocessing.reduction", _watch_sending)


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
