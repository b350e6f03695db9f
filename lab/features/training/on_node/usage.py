"""The `cpu` and `gc` lines: what else holds up a training step.

`cpu` says how long threads have run and waited for a core, as their kernel counts it: the thread that trains, and the
others of its process, which carry the bytes of its calls. `gc` says when Python's garbage collector held up all of them
for a while.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Mapping
from itertools import count
from types import ModuleType
from typing import Any

from ....node.recorder.journal import journal
from ....node.recorder.patching import inlined, nothing

_DENSE, _SPARSE = 16, 32
"""There is a `cpu` line after each of the first steps of an optimizer, then after every so many."""
_MOST_BYTES = 64
_LEAST_NS = 1_000_000
"""Shorter collections hold nobody up: there are thousands of them."""
_steps = count(1)
_collection_began = 0


def watch(module: ModuleType) -> None:
    """Have the threads looked at after steps of the optimizers of `torch.optim.optimizer`."""
    module.register_optimizer_step_post_hook(inlined(_after_step, nothing))


def _after_step(*_: Any) -> None:
    step = next(_steps)
    if journal.on and (step <= _DENSE or step % _SPARSE == 0):
        try:
            here = str(threading.get_native_id())
            ran, queued = _read_times(here)
            others = [_read_times(thread) for thread in os.listdir("/proc/self/task") if thread != here]
        except (OSError, ValueError):  # the kernel does not count them, or a thread has just ended
            return
        beside, beside_queued = sum(one for one, _ in others), sum(one for _, one in others)
        journal.add("cpu", ran=ran, queued=queued, beside=beside, beside_queued=beside_queued)


def _read_times(thread: str) -> tuple[int, int]:
    """Nanoseconds that a thread ran, and that it was queued."""
    file = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)  # `open` takes twice as long
    try:
        ran, queued = os.read(file, _MOST_BYTES).split()[:2]
    finally:
        os.close(file)
    return int(ran), int(queued)


def watch_collections() -> None:
    """Write `gc` lines from now on."""
    if _on_collection not in gc.callbacks:
        gc.callbacks.append(_on_collection)


def _on_collection(phase: str, facts: Mapping[str, Any]) -> None:
    global _collection_began
    if not journal.on:
        return
    now = time.monotonic_ns()
    if phase == "start":
        _collection_began = now
    elif _collection_began and now - _collection_began >= _LEAST_NS:
        journal.add("gc", t=now, took=now - _collection_began, gen=facts.get("generation"))
