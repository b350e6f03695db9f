"""Gets the recorder under a script that knows nothing of it."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..trace_file import LIMIT_BYTES
from . import collector, compiled_group, ddp, groups, handles, marks, native, replicas, stores, threads
from .gate import gate
from .holds import AFTER, CALL, holds
from .imports import when_imported
from .journal import journal
from .source import source

DEFAULT_VALUES = 256
"""At most this many elements of one side of a call are kept as they are, unless a number is given."""
CHOICE_VARIABLE = "LAB_RECORDER"
VALUES_VARIABLE = "LAB_TRACE_VALUES"
CHOICES = ("auto", "compiled", "python", "off")
PRELOADED = f"{__package__}.python_group"
"""What an agent imports so that its workers need not; it needs torch, as nothing else here does."""
_UNKNOWN_RANK = -1
_GPU_DEVICES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""Asking CUDA would start it, and a script may want to say something before."""
_patched = False
"""Whether what is recorded of a training step is patched in this process, or will be once it is imported."""
_begin_again: Callable[[int], None] | None = None
"""Records to another file, once this process, or the one that it is a fork of, has recorded to one."""


@functools.cache
def find_compiled() -> Any | None:
    """The compiled recorder for this torch; None where there is none. An agent asks before its workers do."""
    return native.load()


def start(rank: int, fd: int, folder: str, values: int | None, step_fd: int | None = None) -> None:
    """Record this process from now on, or from when it imports torch.distributed. Never raises.

    `fd` is the trace, open for reading and appending. At most `values` elements of one side of a call are kept; None:
    as many as the environment says.
    Where there is a `step_fd`, each call is held until it is said there that it may go on; only Python can hold it.
    """
    choice = os.environ.get(CHOICE_VARIABLE) or "auto"
    if choice == "off":
        return
    if step_fd is not None:
        choice = "python"
        gate.close(step_fd)
    asked = os.environ.get(VALUES_VARIABLE, "") if values is None else str(values)
    limit = int(asked) if asked.isdecimal() and len(asked) < 10 else DEFAULT_VALUES
    pid = os.getpid()  # a fork must not write to the trace of the process that it is a fork of

    def open_trace(module: ModuleType) -> None:
        if os.getpid() == pid:
            _open(module, choice, rank, fd, folder, limit)

    marks.hold()
    _when_imported("torch.distributed.distributed_c10d", open_trace)
    _patch()


def start_in_started(fd: int, folder: str, values: int | None) -> None:
    """As `start`, for a process that a script started: a fork of one that is recorded, or another interpreter."""
    if _begin_again is not None:
        _begin_again(fd)
    else:
        start(_UNKNOWN_RANK, fd, folder, values)


def _patch() -> None:
    global _patched
    if _patched:
        return
    _patched = True
    collector.watch()
    for name, patch in marks.PATCHES.items():
        _when_imported(name, patch)
    _when_imported("torch.nn.parallel.distributed", ddp.watch)
    _when_imported("torch.optim.optimizer", replicas.watch)
    _when_imported("torch.distributed.rendezvous", stores.watch)
    _when_imported("torch._dynamo.trace_rules", _hide_from_dynamo)


def stop() -> None:
    """End the recording: the script is over."""
    if journal.on:
        ddp.finish()
        replicas.finish()
        if "torch.cuda" in sys.modules and f"{__package__}.streams" in sys.modules:
            sys.modules[f"{__package__}.streams"].watcher.finish()
    journal.close()


def _when_imported(name: str, action: Callable[[ModuleType], None]) -> None:
    """A script must not fail because something in its torch is not as in those that the recorder was written for."""

    def attempt(module: ModuleType) -> None:
        try:
            action(module)
        except Exception as error:
            journal.cut(f"{name} cannot be recorded: {type(error).__name__}: {error}")

    when_imported(name, attempt)


def _hide_from_dynamo(module: ModuleType) -> None:
    """Keep torch.compile from looking into the recorder: its graphs are those that it makes without it."""
    if hasattr(module, "add"):
        module.add(__package__)


def _open(module: ModuleType, choice: str, rank: int, fd: int, folder: str, values: int) -> None:
    global _begin_again
    torch = sys.modules["torch"]
    compiled = find_compiled() if choice in ("auto", "compiled") and not _has_gpus(torch) else None
    kind = "compiled" if compiled is not None else "python"

    def begin(to: int, who: int) -> None:
        journal.open(to, rank=who, recorder=kind, torch=str(torch.__version__), values=values)

    def write_compiled(to: int) -> None:
        if compiled is not None:
            journal.write_through(compiled.write, compiled.stop)
            compiled.start(to, source.folder, source.hidden, values, LIMIT_BYTES)

    def begin_again(to: int) -> None:
        begin(to, _UNKNOWN_RANK)
        write_compiled(to)

    begin(fd, rank)
    if choice not in CHOICES:
        journal.cut(f"{CHOICE_VARIABLE} is {choice!r}; allowed: {', '.join(CHOICES)}")
        return
    if choice == "compiled" and compiled is None:
        why = "it knows no streams of GPUs" if _has_gpus(torch) else native.why()
        journal.cut(f"there is no compiled recorder: {why}")
        return
    source.start(folder, _hidden_folders(torch))
    if compiled is not None:
        write_compiled(fd)
        marks.use_compiled(compiled.mark)
        if holds.points(CALL):
            _hold_compiled(compiled)
        compiled_group.wrap_backends(compiled, module.ProcessGroup)
    else:
        from .calls import RecordedWork
        from .python_group import RecordedGroup

        module.ProcessGroup = RecordedGroup  # type: ignore[attr-defined]
        handles.watch_class(RecordedWork)
        if holds.points(CALL):
            _held_in_python(RecordedGroup)
    groups.watch(module, functools.partial(_record_group_in_python, compiled))
    handles.watch(module)
    threads.watch(module)
    _begin_again = begin_again


def _record_group_in_python(compiled: Any, group: Any) -> None:
    from .groups_in_python import record

    if record(group, compiled) and holds.points(CALL):
        _held_in_python(type(group))


def _hold_compiled(compiled: Any) -> None:
    """Have the compiled recorder count the calls that triggers watch, and hold them."""
    points = holds.points(CALL)
    compiled.hold(
        functools.partial(holds.reach, CALL),
        {op: [(point.nth, point.edge == AFTER) for point in points[op]] for op in points},
    )
    holds.count_calls_by(compiled.count)


def _held_in_python(kind: Any) -> None:
    from .held_calls import hold_calls

    hold_calls(kind)


def _has_gpus(torch: Any) -> bool:
    """Whether calls may be given to streams, whose end only the recorder in Python sees."""
    built = torch.version.cuda is not None or torch.version.hip is not None
    return built and any(map(os.path.exists, _GPU_DEVICES))


def _hidden_folders(torch: Any) -> list[str]:
    """Folders that never hold the script: the standard library, installed packages, the lab's own code."""
    own = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    packages = os.path.dirname(os.path.dirname(torch.__file__))
    return [os.path.dirname(os.__file__), packages, own, os.path.join(os.path.dirname(own), "lab")]
