"""Where each rank is now: from its trace as far as it has been written, which is read on as it grows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lab.record.read import Record
from lab.trace.clocks import align
from lab.trace.fields import DAMAGE, whole
from lab.trace.read import trace_files

_MOST_BYTES = 1 << 20
"""A rank that writes more between two looks calls so much that only the end of it tells where it is."""
_LAST_BYTES = _MOST_BYTES // 8
_LONGEST = 200
_IN_INIT = "init_process_group"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank is."""

    rank: int
    what: str
    """The operation, or the phase of a training step, that it is in; `wait` for a handle; `ended`; empty: none."""
    source: str
    """`file:line` of the script; where it is in nothing, the line that it called from last. Empty: not known."""
    since: float
    """Unix time by the clock of whoever reads the record."""

    @property
    def words(self) -> str:
        """`all_reduce train.py:41`, `in no call since train.py:39`."""
        if self.what:
            return f"{self.what} {self.source}".rstrip()
        return f"in no call since {self.source}" if self.source else "no call yet"


class Whereabouts:
    """Follows the traces of a run that goes on."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._ranks: dict[int, _Follower] = {}
        self._offsets: Mapping[int, int] = {}
        self._origin_s = 0.0

    def look(self) -> dict[int, Place]:
        """By rank: where each is now; only those of whom a trace has arrived that still goes on, or came to its end."""
        known = {rank for rank, follower in self._ranks.items() if follower.start}
        for rank, path in trace_files(self._record).items():
            self._ranks.setdefault(rank, _Follower(path)).read_on()
        starts = {rank: follower.start for rank, follower in self._ranks.items() if follower.start}
        if starts.keys() != known:
            clocks = align(starts, self._record)
            self._offsets, self._origin_s = clocks.offsets, clocks.origin_s
        found = {}
        for rank in sorted(starts):
            moment = self._ranks[rank].moment
            if moment is not None:
                since = (moment.time + self._offsets.get(rank, 0)) / 1e9 + self._origin_s
                found[rank] = Place(rank, moment.what, moment.source, since)
        return found


class _Moment(NamedTuple):
    """Since when a rank has been in something."""

    time: int
    """Nanoseconds of its node's clock."""
    what: str
    source: str


class _Follower:
    """Reads the trace of one rank on."""

    def __init__(self, path: Path) -> None:
        self.start: dict[str, Any] = {}
        """The first line, once it is there."""
        self._path = path
        self._position = 0
        self._forget()

    def _forget(self) -> None:
        self._calls: dict[int, _Moment] = {}
        """Open ones that hold the rank up."""
        self._phases: list[_Moment] = []
        """Marks, and waits for handles, the innermost last."""
        self._last: _Moment | None = None
        """When it came out of something, or handed a call out."""
        self._source = ""
        self._known = True
        """Whether what it does is still on record."""

    @property
    def moment(self) -> _Moment | None:
        """What it is in, which is what it entered last; None where that is not known."""
        if not self._known:
            return None
        return max((*self._calls.values(), *self._phases), default=self._last)

    def read_on(self) -> None:
        """Take the whole lines that were written since; of very many, the last."""
        try:
            with self._path.open("rb") as file:
                if not self.start:
                    first = _read(file.readline(_MOST_BYTES)) or {}
                    self.start = first if first.get("k") == "start" else {}
                size = os.fstat(file.fileno()).st_size
                skipped = size - self._position > _MOST_BYTES
                if skipped:
                    self._forget()
                    self._position = size - _LAST_BYTES
                file.seek(self._position)
                data = file.read(_MOST_BYTES)
        except OSError:
            return
        end = data.rfind(b"\n") + 1
        self._position += end or (len(data) if len(data) == _MOST_BYTES else 0)
        for raw in data[:end].splitlines()[1 if skipped else 0 :]:
            line = _read(raw)
            if line is not None:
                try:
                    self._take(line)
                except DAMAGE:
                    continue

    def _take(self, line: Mapping[str, Any]) -> None:
        kind, now = line.get("k"), whole(line["t"])
        self._source = str(line.get("at") or self._source)[:_LONGEST]
        if kind == "begin":
            if not (line.get("async") or str(line.get("via", "")).endswith(("isend", "irecv"))):
                self._calls[whole(line["i"])] = _Moment(now, str(line["op"])[:_LONGEST], self._source)
            else:
                self._last = _Moment(now, "", self._source)
        elif kind == "end":
            if self._calls.pop(whole(line["i"]), None) is not None:
                self._last = _Moment(now, "", self._source)
        elif kind in ("mark", "wait", "store"):
            name = str(line["n"])[:_LONGEST] if kind == "mark" else "wait" if kind == "wait" else "TCPStore"
            self._phase(name, now, ended=bool(line.get("e")))
        elif kind in ("start", "stop"):
            self._last = _Moment(now, "ended" if kind == "stop" else "", "")
            self._calls, self._phases = {}, []
        elif kind == "cut":
            self._known = False

    def _phase(self, name: str, now: int, *, ended: bool) -> None:
        if not ended:
            if not (name == "TCPStore" and any(phase.what == _IN_INIT for phase in self._phases)):
                self._phases.append(_Moment(now, name, self._source))
            return
        for depth in range(len(self._phases) - 1, -1, -1):
            if self._phases[depth].what == name:
                del self._phases[depth:]
                self._last = _Moment(now, "", self._source)
                return


def _read(raw: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None
