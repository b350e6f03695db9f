"""Calls that a stream of a GPU ends, and no thread: seen by events on it, without the script waiting for any.

Never tried on a GPU: docs/gpu.md says what that means.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

_PAUSE_S = 0.0002
_LAST_PATIENCE_S = 0.2
_DEVICES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""Asking CUDA would start it, and a script may want to say something before."""
Event = Any
"""Of torch.cuda: `query` says whether its stream has come to it."""


class Watcher:
    """Does something for each event once its stream has come to it."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: a fork has neither the thread nor what it waits for."""
        self._waiting: list[tuple[Event, Callable[[], object]]] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def when_passed(self, event: Event, action: Callable[[], object]) -> None:
        """Have `action` called soon after a stream has come to an event."""
        with self._changed:
            self._waiting.append((event, action))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lab-recorder", daemon=True)
                self._thread.start()
            self._changed.notify()

    def poll(self) -> bool:
        """Act on those events that were passed, in their order; returns whether any still waits."""
        with self._changed:
            passed = [one for one in self._waiting if one[0].query()]
            self._waiting = [one for one in self._waiting if one not in passed]
            left = bool(self._waiting)
        for _, action in passed:
            action()
        return left

    def finish(self) -> None:
        """Wait a moment for what is still to come: the process ends."""
        end = time.monotonic() + _LAST_PATIENCE_S
        while self.poll() and time.monotonic() < end:
            time.sleep(_PAUSE_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
            self.poll()
            time.sleep(_PAUSE_S)


watcher = Watcher()
"""That of this process."""
os.register_at_fork(after_in_child=watcher.forget)


def finish_events() -> None:
    """Wait a moment for what is still to come: the recording ends."""
    watcher.finish()


class StreamTime:
    """The time of a call on the stream that it was given to."""

    def __init__(self, tensor: Any) -> None:
        self._device = tensor.device
        self._begin = self._record_event()

    def end(self, action: Callable[[int], object]) -> None:
        """Call `action` with the nanoseconds between both marks, once the stream has come to the second: now."""
        last = self._record_event()
        watcher.when_passed(last, lambda: action(int(self._begin.elapsed_time(last) * 1e6)))

    def _record_event(self) -> Event:
        import torch

        with torch.cuda.device(self._device):
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        return event


def start_time(tensors: Sequence[Any]) -> StreamTime | None:
    """The time of a call with these tensors; None where they are on no GPU."""
    first = next((tensor for tensor in tensors if tensor.is_cuda), None)
    return StreamTime(first) if first is not None else None


def refuse_compiled(torch: Any) -> str:
    """Why the compiled recorder cannot be used: calls may be given to streams; empty where there are none."""
    built = torch.version.cuda is not None or torch.version.hip is not None
    return "it knows no streams of GPUs" if built and any(map(os.path.exists, _DEVICES)) else ""
