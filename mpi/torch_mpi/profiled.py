"""Calls as events of torch's profiler, under the names that its other backends would give them: `mpi:all_reduce`."""

from __future__ import annotations

import threading
from typing import Any

from torch.autograd import (  # what torch.profiler itself is written upon
    _profiler_enabled,
    _record_function_with_args_enter,
    _record_function_with_args_exit,
)

from torch_mpi.buffers import Tensors


def begin(call: str, tensors: Tensors) -> Any | None:
    """An event that begins now, with the shapes of these tensors; None where nobody profiles."""
    return _record_function_with_args_enter(f"mpi:{call}", *tensors) if _profiler_enabled() else None


def end(event: Any) -> None:
    """The event is over. In another thread than that of its beginning, the profiler takes it to be asynchronous."""
    _record_function_with_args_exit(event)


def end_message(event: Any) -> None:
    """The event of a message is over, which the profiler takes to be asynchronous whoever waits for it."""
    thread = threading.Thread(target=end, args=(event,), name="mpi-event")
    thread.start()
    thread.join()
