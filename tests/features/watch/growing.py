"""A record that somebody is still writing, for tests of what watches runs."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

from lab.record.layout import EVENTS, INDEX, LOCK, LOGS, RESULT, rank_log
from lab.record.read import Record
from tests.traces import TraceMaker

ORIGIN = 1_700_000_000.0
"""Unix time at which its traces begin."""


class Growing:
    """The record of a run that goes on until `end`. Times are milliseconds from its start."""

    def __init__(self, folder: Path, world_size: int = 3) -> None:
        self.made = TraceMaker(folder, world_size)
        self.record = Record(path=folder)
        self._index = (folder / INDEX).open("ab", buffering=0)
        self._lock = (folder / LOCK).open("ab")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._offsets: dict[int, int] = {}
        for rank in range(world_size):
            self.event("started", rank, 0)
        self.write()

    def write(self) -> None:
        """Write what the traces hold by now."""
        self.made.record(stop=False)

    def event(self, name: str, rank: int, at_ms: float, **facts: Any) -> None:
        """Add a fact about a rank."""
        data = {"event": name, "rank": rank, "node": f"node{rank}", "time": ORIGIN + at_ms / 1e3, **facts}
        with (self.record.path / EVENTS).open("a") as file:
            file.write(json.dumps(data) + "\n")

    def prints(self, rank: int, data: bytes, at_ms: float, stream: int = 1) -> None:
        """A rank prints something."""
        with (self.record.path / LOGS / rank_log(rank)).open("ab") as log:
            log.write(data)
        offset = self._offsets.get(rank, 0)
        self._index.write(json.dumps([rank, stream, offset, len(data), ORIGIN + at_ms / 1e3]).encode() + b"\n")
        self._offsets[rank] = offset + len(data)

    def end(self, verdict: str = "passed", reason: str = "all ranks ended as expected") -> None:
        """The run is over."""
        data = {"verdict": verdict, "reason": reason, "scenario": "train", "ranks": [], "duration_s": 1.0}
        (self.record.path / RESULT).write_text(json.dumps({**data, "run": "r", "engine": "local", "cluster": "c"}))
        self._index.close()
        self._lock.close()
