"""Calls that a stream of a GPU ends, and no thread: seen by events on it, without the script waiting for any."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

_PAUSE_S = 0.0005
_LAST_PATIENCE_S = 0.2
_DEVICES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""Asking CUDA would start it, and a script may want to say something before."""
Event = Any
"""Of torch.cuda: `query` says whether its stream has come to it."""


_THREAD_LOCAL = 1
"""Of the driver's CUstreamCaptureMode. By default no thread may query an event while another captures a graph."""


class Watcher:
    """Does something for each event once its stream has come to it."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: a fork has neither the thread nor what it waits for."""
        self._waiting: list[tuple[Event, Callable[[], object], Callable[[Exception], object]]] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def when_passed(
        self, event: Event, action: Callable[[], object], fail: Callable[[Exception], object] = lambda _: None
    ) -> None:
        """Have `action` called soon after a stream has come to an event, or `fail` if the device fails before."""
        with self._changed:
            self._waiting.append((event, action, fail))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lab-recorder", daemon=True)
                self._thread.start()
            self._changed.notify()

    def poll(self) -> bool:
        """Act on those events that were passed or failed, in their order; returns whether any still waits."""
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
        """Wait a moment for what is still to come: the process ends."""
        end = time.monotonic() + _LAST_PATIENCE_S
        while self.poll() and time.monotonic() < end:
            time.sleep(_PAUSE_S)

    def _run(self) -> None:
        with suppress(Exception):
            ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(_THREAD_LOCAL)))
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

    def __init__(self, device: int) -> None:
        self._device = device
        self._begin = self._record_event()

    def end(self, action: Callable[..., object]) -> None:
        """Call `action` with the nanoseconds as `gpu` once the stream has come to this point, or with its error."""
        try:
            last = self._record_event()
        except Exception as error:
            action(error)
        else:
            watcher.when_passed(last, lambda: action(gpu=int(self._begin.elapsed_time(last) * 1e6)), action)

    def _record_event(self) -> Event:
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event


def start_time(tensors: Sequence[Any]) -> StreamTime | None:
    """The time of a call with these tensors; None where they are on no GPU, or the call goes into a graph."""
    first = next((tensor for tensor in tensors if tensor.is_cuda), None)
    if first is None:
        return None
    import torch

    with suppress(Exception), torch.cuda.device(first.device.index):  # a failed device: the call itself will say so
        return None if torch.cuda.is_current_stream_capturing() else StreamTime(first.device.index)
    return None


def refuse_compiled(torch: Any) -> str:
    """Why the compiled recorder cannot be used: calls may be given to streams; empty where there are none."""
    built = torch.version.cuda is not None or torch.version.hip is not None
    return "it knows no streams of GPUs" if built and any(map(os.path.exists, _DEVICES)) else ""
