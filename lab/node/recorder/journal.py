"""The trace of this process: a file to which whole lines are appended; and which line of the script led to one."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from ..hooks import FEATURES

FORMAT = 1
OWN_CODE = (os.path.join(os.path.dirname(__file__), ""), FEATURES)
"""Folders of the recorder and of what features add to it."""
_PLUMBING = frozenset({"wrapper", "decorate_context", "_wrapped_call_impl", "_call_impl"})
"""Decorators and the machinery of torch.nn.Module stand between a line and what it calls."""
_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class Journal:
    """Where lines go. Off until it is opened, and in every fork of the process that opened it."""

    def __init__(self) -> None:
        self.on = False
        """Whether lines are kept."""
        self.values = 0
        """At most this many elements of one side of a call are kept as they are."""
        self._fd = -1
        self._put: Callable[[bytes], object] = self._append
        self._stop: Callable[[], bool] = lambda: True

    def open(self, fd: int, *, rank: int, recorder: str, torch: str, values: int) -> None:
        """Begin with a `start` line, in a file that is open for appending."""
        self._put, self._stop = self._append, lambda: True
        self._fd, self.values, self.on = fd, values, True
        facts: dict[str, Any] = {"format": FORMAT, "rank": rank, "pid": os.getpid()}
        now, wall, then = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        facts |= {"wall": wall, "within": then - now, "boot": clock_id(), "cores": len(os.sched_getaffinity(0))}
        self.add("start", t=now, **facts, recorder=recorder, torch=torch, values=values)

    def write_through(self, put: Callable[[bytes], object], stop: Callable[[], bool]) -> None:
        """Leave the file to the compiled recorder, which has it mapped, until the recording ends.

        `put` appends a line; `stop` gives the file back, and is False if that recorder had ended the recording before.
        """
        self._put, self._stop = put, stop

    def add(self, kind: str, **facts: Any) -> None:
        """Append a line of this kind; `t` is now unless given."""
        if self.on:
            line = {"k": kind, "t": time.monotonic_ns(), **facts}
            self._put(_json(line).encode("utf-8", "replace") + b"\n")

    def cut(self, why: str) -> None:
        """End the recording before the script's end."""
        self.close("cut", why=why)

    def forget(self) -> None:
        """Stop without a word: there is no room left, or this process is a fork of the one that is recorded."""
        self.on = False

    def close(self, kind: str = "stop", **facts: Any) -> None:
        """End the recording with a line of this kind."""
        if self.on:
            self.on = self._stop()
            self._put = self._append
            self.add(kind, **facts)
            self.on = False

    def _append(self, line: bytes) -> None:
        """One write() a line: it is the kernel's before the call goes on, so it outlives a SIGKILL."""
        try:
            written = os.write(self._fd, line)
            if written < len(line):  # half a line is none
                self.forget()
                fcntl.fcntl(self._fd, fcntl.F_SETFL, 0)  # else what is written anywhere is appended
                os.pwrite(self._fd, bytes(written), os.fstat(self._fd).st_size - written)
        except OSError:
            self.forget()


def clock_id() -> str:
    """Names the clock of this process: those for which it is the same share a monotonic clock. Empty where unknown.

    Its first word names the running kernel, on which all have the same time of day; the second the time namespace.
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
"""That of this process."""
os.register_at_fork(after_in_child=journal.forget)


class Source:
    """Looks at the stack of the calling thread."""

    def __init__(self) -> None:
        self.folder = "/"
        self.hidden: tuple[str, ...] = ()
        """Beginnings of paths that are never the script's."""

    def start(self, folder: str, hidden: list[str]) -> None:
        """Say which folder is the script's (paths are given relative to it), and which ones never hold it."""
        self.folder = os.path.join(folder, "")
        self.hidden = ("<", *(os.path.join(path, "") for path in hidden))

    def locate(self) -> dict[str, str]:
        """The innermost line in the script's folder, else the innermost one that is not hidden: `at`, `fn`, `via`."""
        frame: FrameType | None = sys._getframe(1)
        location: dict[str, str] = {}
        via = ""
        while frame is not None:
            code, path = frame.f_code, frame.f_code.co_filename
            if not path.startswith(OWN_CODE):
                if path and not path.startswith(self.hidden):
                    in_script = path[0] != "/" or path.startswith(self.folder)  # the working folder is the script's
                    if in_script or not location:
                        shown = path.removeprefix(self.folder).removeprefix("./")
                        location = {
                            "at": f"{shown}:{frame.f_lineno}",
                            "fn": code.co_name,
                            **({"via": via} if via else {}),
                        }
                    if in_script:
                        break
                via = _readable_name(code) or via
            frame = frame.f_back
        return location

    def line(self) -> str:
        """The `at` of that place; empty where there is none."""
        return self.locate().get("at", "")


def _readable_name(code: CodeType) -> str:
    """Empty for a function whose name tells a reader nothing."""
    name = str(getattr(code, "co_qualname", code.co_name))  # Python 3.11 and later know the class
    if code.co_name in _PLUMBING or "<" in name or name.startswith("_GeneratorContextManager"):
        return ""
    return name.removeprefix("Tensor.")


source = Source()
"""What reads the stacks of this process."""
