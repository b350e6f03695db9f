"""The `gc` lines: when Python's garbage collector held up all threads of this process for a while."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from typing import Any

from .journal import journal

_LEAST_NS = 1_000_000
"""Shorter ones hold nobody up: there are thousands of them."""
_begun = 0


def watch() -> None:
    """Have the collector tell, from now on, when it begins and when it is done."""
    if _tell not in gc.callbacks:
        gc.callbacks.append(_tell)


def _tell(phase: str, found: Mapping[str, Any]) -> None:
    global _begun
    if not journal.on:
        return
    now = time.monotonic_ns()
    if phase == "start":
        _begun = now
    elif _begun and now - _begun >= _LEAST_NS:
        journal.add("gc", t=now, took=now - _begun, gen=found.get("generation"))
