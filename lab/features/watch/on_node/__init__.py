"""Node code of step-by-step runs: holds the script before each call until the person who watches releases it."""

from __future__ import annotations

import os
import threading
from typing import Any

from ....node.recorder import install as recorder
from ....node.recorder.journal import journal

HOOKS = {"worker": "close_gate", "hold_call": "hold_call"}


class Gate:
    """Open until it gets a pipe; the agent then sends the index of the last released call."""

    def __init__(self) -> None:
        self.closed = False
        """Whether calls are held."""
        self._fd = -1
        self._allowed = 0
        self._rest = b""
        self._lock = threading.Lock()

    def close(self, fd: int) -> None:
        """Hold every call from now on."""
        self._fd, self.closed = fd, True

    def wait(self, call: int) -> None:
        """Return when the call of this index may begin; at once if no agent is left to release it."""
        with self._lock:
            while self.closed and self._allowed < call:
                try:
                    chunk = os.read(self._fd, 4096)
                except OSError:  # the script has closed it
                    chunk = b""
                *whole, self._rest = (self._rest + chunk).split(b"\n")
                self._allowed = max([self._allowed, *(int(word) for word in whole if word.isdigit())])
                self.closed = bool(chunk)


gate = Gate()
"""The gate of this process."""


def close_gate(spec: dict[str, Any]) -> None:
    """Hold the calls of a stepped worker; this needs the recorder in Python."""
    if spec.get("step_fd") is not None:
        recorder.use_python()
        gate.close(spec["step_fd"])


def hold_call(number: int, facts: dict[str, Any]) -> None:
    """Write that a call is held, and return when it may begin."""
    if gate.closed:
        journal.add("hold", i=number, **facts)
        gate.wait(number)
