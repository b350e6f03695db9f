"""Times of calls that a CUDA stream ends, not a thread: measured with events, without blocking the script.

Never tested on a GPU: docs/gpu.md describes the consequences.
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
"""A query would initialize CUDA, and a script may want to set something before that."""
Event = Any
"""A torch.cuda event: `query` says whether its stream has reached it."""


class Watcher:
    """Runs an action for each event once its stream has reached it."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset: a fork has neither the thread nor the events."""
        self._waiting: list[tuple[Event, Callable[[], object]]] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def when_passed(self, event: Event, action: Callable[[], object]) -> None:
        """Have `action` called soon after a stream has reached an event."""
        with self._changed:
            self._waiting.append((event, action))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lab-recorder", daemon=True)
                self._thread.start()
            self._changed.notify()

    def poll(self) -> bool:
        """Run the actions of completed events, in their order; return whether any event is pending."""
        with self._changed:
            passed = [one for one in self._waiting if one[0].query()]
            self._waiting = [one for one in self._waiting if one not in passed]
            left = bool(self._waiting)
        for _, action in passed:
            action()
        return left

    def finish(self) -> None:
        """Wait a moment for pending events, because the process ends."""
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
"""The watcher of this process."""
os.register_at_fork(after_in_child=watcher.forget)


def finish_events() -> None:
    """Wait a moment for pending events, because the recording ends."""
    watcher.finish()


class StreamTime:
    """The time of a call on its stream."""

    def __init__(self, tensor: Any) -> None:
        self._device = tensor.device
        self._begin = self._record_event()

    def end(self, action: Callable[[int], object]) -> None:
        """Call `action` with the nanoseconds between both events, once the stream has reached the second one."""
        last = self._record_event()
        watcher.when_passed(last, lambda: action(int(self._begin.elapsed_time(last) * 1e6)))

    def _record_event(self) -> Event:
        import torch

        with torch.cuda.device(self._device):
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        return event


def start_time(tensors: Sequence[Any]) -> StreamTime | None:
    """Return the timer of a call with these tensors; None if they are not on a GPU."""
    first = next((tensor for tensor in tensors if tensor.is_cuda), None)
    return StreamTime(first) if first is not None else None


def refuse_compiled(torch: Any) -> str:
    """Return why the compiled recorder cannot be used: calls may run on streams; empty if there are no GPUs."""
    built = torch.version.cuda is not None or torch.version.hip is not None
    return "it does not support GPU streams" if built and any(map(os.path.exists, _DEVICES)) else ""
