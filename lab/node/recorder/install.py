"""Install the recorder in a process, without a change to its script."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

from ..hooks import FEATURES, hooks
from ..trace_file import LIMIT_BYTES
from . import compiled as compiled_recorder
from . import groups, handles, phases
from .journal import journal, source
from .patching import hide_wrappers, patch_module

DEFAULT_VALUES = 256
"""Default limit of recorded elements for each side of a call; a larger side gets summaries."""
CHOICE_VARIABLE = "LAB_RECORDER"
VALUES_VARIABLE = "LAB_TRACE_VALUES"
CHOICES = ("auto", "compiled", "python", "off")
PRELOADED = f"{__package__}.python_group"
"""The agent imports this module, so that its workers have it; unlike the rest of the package it needs torch."""
_needs_python = False
"""Whether this process has to use the Python recorder."""
_begin_again: Callable[[int, int], None] | None = None
"""Restarts the recording with another file; set once this process, or the process that forked it, has recorded."""


def use_python() -> None:
    """Use the Python recorder in this process, if it records at all."""
    global _needs_python
    _needs_python = True


def start_recording(rank: int, fd: int, folder: str, values: int | None) -> None:
    """Record this process from now on, or from when it imports torch.distributed. Never raises.

    Args:
        rank: rank of this process; -1 if unknown.
        fd: the trace, open for reading and appending.
        folder: the folder of the script.
        values: limit of recorded elements for each side of a call; None: `LAB_TRACE_VALUES`, or the default.
    """
    if _begin_again is not None:  # this is a fork of a recorded process
        _begin_again(fd, rank)
        return
    choice = os.environ.get(CHOICE_VARIABLE) or "auto"
    if choice == "off":
        return
    asked = os.environ.get(VALUES_VARIABLE, "") if values is None else str(values)
    limit = int(asked) if asked.isdecimal() and len(asked) < 10 else DEFAULT_VALUES
    pid = os.getpid()  # a fork must not write to the trace of its parent

    def open_trace(module: ModuleType) -> None:
        if os.getpid() == pid:
            _open(module, "python" if _needs_python else choice, rank, fd, folder, limit)

    patch_module("torch.distributed.distributed_c10d", open_trace)
    _patch()


@cache
def _patch() -> None:
    """Record the phases of training steps, stores, and the parts of features; once in a process and its forks."""
    phases.watch_training_steps()
    if sys.version_info < (3, 11):
        patch_module("traceback", hide_wrappers)
    patch_module("torch.distributed.rendezvous", groups.watch_stores)
    patch_module("torch._dynamo.trace_rules", _hide_from_dynamo)
    for begin in hooks("recorder"):
        begin()


def stop_recording() -> None:
    """End the recording at the end of the script."""
    if journal.on:
        for finish in hooks("recorder_stop"):
            finish()
    journal.close()


def _hide_from_dynamo(module: ModuleType) -> None:
    """Keep torch.compile from tracing into the recorder, so that its graphs are the same as without it."""
    if hasattr(module, "add"):
        module.add(__package__)
        module.add(f"{__package__.partition('.')[0]}.features")


def _open(module: ModuleType, choice: str, rank: int, fd: int, folder: str, values: int) -> None:
    global _begin_again
    torch: Any = sys.modules["torch"]
    refused = next((why for refuse in hooks("refuse_compiled") if (why := refuse(torch))), "")
    compiled = compiled_recorder.load_recorder() if choice in ("auto", "compiled") and not refused else None

    def begin(to: int, who: int) -> None:
        kind = "python" if compiled is None else "compiled"
        journal.open(to, rank=who, recorder=kind, torch=str(torch.__version__), values=values)
        if compiled is not None:
            journal.write_through(compiled.write, compiled.stop)
            compiled.start(to, source.folder, source.hidden, values, LIMIT_BYTES)

    own, packages = (os.path.dirname(os.path.dirname(path)) for path in (FEATURES, torch.__file__))
    # The standard library, installed packages, and the lab's own code never hold the script.
    source.start(folder, [os.path.dirname(os.__file__), packages, own, os.path.join(os.path.dirname(own), "lab")])
    begin(fd, rank)
    if choice not in CHOICES:
        journal.cut(f"{CHOICE_VARIABLE} is {choice!r}; allowed: {', '.join(CHOICES)}")
        return
    if choice == "compiled" and compiled is None:
        journal.cut(f"{CHOICE_VARIABLE} is 'compiled', but {refused or compiled_recorder.why}")
        return
    if compiled is not None:
        phases.write_with(compiled.mark)
    for act in hooks("recording"):
        act(compiled)
    if compiled is not None:
        compiled_recorder.wrap_backends(compiled, module.ProcessGroup)
    else:
        from .python_group import RecordedGroup, RecordedWork, attach_hooks_inside

        attach_hooks_inside()
        module.ProcessGroup = RecordedGroup  # type: ignore[attr-defined]
        handles.watch_class(RecordedWork)
        for watch in hooks("group_class"):
            watch(RecordedGroup)
    groups.watch_groups(module, compiled)
    handles.watch_handles(module)
    _begin_again = begin
