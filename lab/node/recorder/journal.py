"""Write the trace of this process, one whole line after the other, and find the line of the script that made a call."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from inspect import CO_NESTED, unwrap
from types import CodeType, FrameType
from typing import Any

from ..hooks import FEATURES

FORMAT = 1
OWN_CODE = (os.path.join(os.path.dirname(__file__), ""), FEATURES)
"""Folders of the recorder and of the features' additions to it."""
_PLUMBING = frozenset({"wrapper", "decorate_context", "_wrapped_call_impl", "_call_impl"})
"""Functions of decorators and of torch.nn.Module, whose names tell a reader nothing."""
_FARTHEST_CALLER = 64
"""Frames in which the caller of a function of the script is looked for."""
_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class Journal:
    """Append lines to the trace. Off until `open`, and in every fork of the process that opened it."""

    def __init__(self) -> None:
        self.on = False
        """Whether it records."""
        self.values = 0
        """Limit of recorded elements for each side of a call."""
        self._fd = -1
        self._put: Callable[[bytes], object] = self._append
        self._stop: Callable[[], bool] = lambda: True
        self.threads: dict[int, Journal] = {}
        """Identifier of a thread that is a rank of its own -> where its lines go."""

    def open(self, fd: int, *, rank: int, recorder: str, torch: str, values: int) -> None:
        """Write a `start` line to a file that is open for appending."""
        self._put, self._stop = self._append, lambda: True
        self._fd, self.values, self.on = fd, values, True
        facts: dict[str, Any] = {"format": FORMAT, "rank": rank, "pid": os.getpid()}
        now, wall, then = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        facts |= {"wall": wall, "within": then - now, "boot": clock_id()}
        self.add("start", t=now, **facts, recorder=recorder, torch=torch, values=values)

    def write_through(self, put: Callable[[bytes], object], stop: Callable[[], bool]) -> None:
        """Let the compiled recorder, which has mapped the file, write all lines until the recording ends.

        `put` appends a line. `stop` releases the file, and returns False if that recorder had already stopped.
        """
        self._put, self._stop = put, stop

    def add(self, kind: str, **facts: Any) -> None:
        """Append a line of this kind; the default of `t` is the current time."""
        if self.on:
            line = {"k": kind, "t": time.monotonic_ns(), **facts}
            self.threads.get(threading.get_ident(), self)._put(_json(line).encode("utf-8", "replace") + b"\n")

    def cut(self, why: str) -> None:
        """End the recording before the end of the script."""
        self.close("cut", why=why)

    def forget(self) -> None:
        """Stop without a last line: the disk is full, or this process is a fork of the recorded process."""
        self.on = False
        self.threads.clear()

    def close(self, kind: str = "stop", **facts: Any) -> None:
        """Write a line of this kind and end the recording."""
        if self.on:
            self.on = self._stop()
            self._put = self._append
            self.add(kind, **facts)
            self.on = False

    def _append(self, line: bytes) -> None:
        """Write a line with one write(): the kernel has it before the call continues, so a SIGKILL does not lose it."""
        try:
            written = os.write(self._fd, line)
            if written < len(line):  # remove the incomplete line
                self.forget()
                fcntl.fcntl(self._fd, fcntl.F_SETFL, 0)  # with O_APPEND, pwrite() appends at any offset
                os.pwrite(self._fd, bytes(written), os.fstat(self._fd).st_size - written)
        except OSError:
            self.forget()


def clock_id() -> str:
    """Return a name for the clock of this process; empty if unknown.

    Processes with the same name share a monotonic clock. The first word names the running kernel, whose processes share
    the time of day. The second word names the time namespace.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
    except OSError:
        return ""
    try:
        return f"{boot} {os.stat('/proc/self/ns/time').st_ino}"
    except OSError:  # kernels before 5.6 have no such namespaces
        return boot


journal = Journal()
"""The journal of this process."""
os.register_at_fork(after_in_child=journal.forget)


class Source:
    """Find the line of the script on the stack of the calling thread."""

    def __init__(self) -> None:
        self.folder = "/"
        self.hidden: tuple[str, ...] = ()
        """Prefixes of paths that never belong to the script."""

    def start(self, folder: str, hidden: list[str]) -> None:
        """Set the folder of the script, which locations are relative to, and folders that never hold the script."""
        self.folder = os.path.join(folder, "")
        self.hidden = ("<", *(os.path.join(path, "") for path in hidden))

    def locate(self) -> dict[str, str]:
        """Return `at`, `fn`, and `via` of the innermost line in the script's folder, else of the innermost visible.

        `by` is the line of the script that called the function with that line.
        """
        return self._locate(sys._getframe(1)) or self._locate(frame_in_backward())

    def _locate(self, frame: FrameType | None) -> dict[str, str]:
        location: dict[str, str] = {}
        via = ""
        while frame is not None:
            code, path = frame.f_code, frame.f_code.co_filename
            if not path.startswith(OWN_CODE):
                if path and not path.startswith(self.hidden):
                    in_script = path[0] != "/" or path.startswith(self.folder)  # the working folder is the script's
                    if in_script or not location:
                        location = {"at": self._at(frame), "fn": code.co_name, **({"via": via} if via else {})}
                    if in_script:
                        location.update(self._caller(frame))
                        break
                via = _readable_name(frame) or via
            frame = frame.f_back
        return location

    def _at(self, frame: FrameType) -> str:
        return f"{frame.f_code.co_filename.removeprefix(self.folder).removeprefix('./')}:{frame.f_lineno}"

    def _caller(self, frame: FrameType | None) -> dict[str, str]:
        for _ in range(_FARTHEST_CALLER):
            if frame is None or frame.f_code.co_name == "<module>":
                break
            frame = frame.f_back
            path = frame.f_code.co_filename if frame is not None else ""
            shown = path and not path.startswith((*OWN_CODE, *self.hidden))
            if frame is not None and shown and (path[0] != "/" or path.startswith(self.folder)):
                return {"by": self._at(frame)}
        return {}

    def line(self) -> str:
        """Return the `at` of that line; empty if there is none."""
        return self.locate().get("at", "")


def frame_in_backward() -> FrameType | None:
    """Return the main thread's frame if it waits in a backward pass, where another thread makes the calls for a GPU."""
    main = threading.main_thread().ident
    frame = sys._current_frames().get(main) if main is not None and main != threading.get_ident() else None
    return frame if frame is not None and frame.f_code.co_name == "_engine_run_backward" else None


def _readable_name(frame: FrameType) -> str:
    """Return the qualified name of a function; empty if it tells a reader nothing."""
    code = frame.f_code
    name = str(getattr(code, "co_qualname", "") or _names.get(code) or _names.setdefault(code, qualified_name(frame)))
    if code.co_name in _PLUMBING or "<" in name or name.startswith("_GeneratorContextManager"):
        return ""
    return name.removeprefix("Tensor.")


_names: dict[CodeType, str] = {}
"""Qualified names of functions before Python 3.11, which has them in code objects."""


def qualified_name(frame: FrameType) -> str:
    """Return the name of a function, for a method of a class of its module with the name of the class."""
    code, name = frame.f_code, frame.f_code.co_name
    for kind in [*frame.f_globals.values()]:
        # `isinstance` would ask for the value's class, of which some values in torch.distributed warn
        if issubclass(type(kind), type) and getattr(unwrap(vars(kind).get(name)), "__code__", None) is code:
            return f"{kind.__qualname__}.{name}"
    return "<locals>" if code.co_flags & CO_NESTED else name


source = Source()
"""The source locations of this process."""
