"""Node code for GPUs: times of calls that a stream ends, measured with events, without blocking the script."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

HOOKS = {"refuse_compiled": "refuse_compiled", "stream_time": "start_time", "recorder_stop": "finish_events"}


_PAUSE_S, _LAST_PATIENCE_S = 0.0005, 0.2
_DEVICES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""A query would initialize CUDA, and a script may want to set something before that."""


class Watcher:
    """Runs an action for each event once its stream has reached it."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset: a fork has neither the thread nor the events."""
        self._waiting: list[tuple[Any, Callable[[], object], Callable[[Exception], object]]] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def when_passed(self, event: Any, action: Callable[[], object], fail: Callable[[Exception], object]) -> None:
        """Have `action` called soon after a stream has reached an event, or `fail` if the device fails."""
        with self._changed:
            self._waiting.append((event, action, fail))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lab-recorder", daemon=True)
                self._thread.start()
            self._changed.notify()

    def poll(self) -> bool:
        """Run the actions of completed and failed events, in their order; return whether any event is pending."""
        with self._changed:  # until all lines are written: `finish` must not return before
            waiting, self._waiting = self._waiting, []
            for event, action, fail in waiting:
                try:
                    if event.query():
                        action()
                    else:
                        self._waiting.append((event, action, fail))
                except Exception as error:  # such as a device-side assert; the device never recovers
                    fail(error)
            return bool(self._waiting)

    def finish(self) -> None:
        """Wait a moment for pending events, because the process ends."""
        end = time.monotonic() + _LAST_PATIENCE_S
        while self.poll() and time.monotonic() < end:
            time.sleep(_PAUSE_S)

    def _run(self) -> None:
        # By default no thread may query an event while another captures a graph; 1: CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        with suppress(Exception):
            ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(1)))
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
            self.poll()
            time.sleep(_PAUSE_S)


watcher = Watcher()
"""The watcher of this process."""
os.register_at_fork(after_in_child=watcher.forget)


def finish_events() -> None:
    """Wait a moment for pending events, because the recording ends."""
    watcher.finish()


class StreamTime:
    """The time of a call on the stream of this device."""

    def __init__(self, device: int) -> None:
        self._device, self._begin = device, _record_event(device)

    def end(self, action: Callable[..., object]) -> None:
        """Call `action` with the nanoseconds as `gpu` once the stream has reached this point, or with an error."""
        try:
            last = _record_event(self._device)
            watcher.when_passed(last, lambda: action(gpu=int(self._begin.elapsed_time(last) * 1e6)), action)
        except Exception as error:
            action(error)


def _record_event(device: int) -> Any:
    event = sys.modules["torch"].cuda.Event(enable_timing=True)
    event.record(sys.modules["torch"].cuda.current_stream(device))
    return event


def start_time(tensors: Sequence[Any]) -> StreamTime | None:
    """Return the timer of a call with these tensors; None if they are not on a GPU, or a graph captures the call."""
    if (device := next((tensor.device.index for tensor in tensors if tensor.is_cuda), None)) is not None:
        cuda = sys.modules["torch"].cuda
        with suppress(Exception), cuda.device(device):  # if the device has failed, the call raises
            return None if cuda.is_current_stream_capturing() else StreamTime(device)
    return None


def refuse_compiled(torch: Any) -> str:
    """Return why the compiled recorder cannot be used: calls may run on streams; empty if there are no GPUs."""
    built = torch.version.cuda is not None or torch.version.hip is not None
    return "it does not support GPU streams" if built and any(map(os.path.exists, _DEVICES)) else ""
