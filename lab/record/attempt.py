"""What one attempt of a run leaves: files that grow while it goes on. Most runs have but one attempt."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from lab.errors import RecordError
from lab.record.events import Event, event_line
from lab.record.held import hold
from lab.record.layout import EVENTS, INDEX, LOGS, TRACE, rank_log, rank_trace
from lab.record.record_files import append_to, move_file
from lab.record.rows import Rows

_NEXT_INDEX = f"{LOGS}/.next-index.jsonl"
"""An index whose attempt takes the place of the one before in a moment."""


class AttemptWriter:
    """Appends to the files of an attempt; a RecordError where they cannot be written.

    Args:
        path: where they are.
        waits: whether another attempt is still there, which has to `move` before this one can `take_over`.
    """

    def __init__(self, path: Path, *, waits: bool = False) -> None:
        self.path = path
        self._files: dict[str, BinaryIO] = {}
        self._offsets: dict[int, int] = {}
        self._rows: dict[int, dict[int, Rows]] = {}
        """What ranks print and may still write over, by rank and stream."""
        self._heard: dict[int, float] = {}
        name = _NEXT_INDEX if waits else INDEX
        self._append(name, b"")
        hold(self._files[name])

    def move(self, folder: Path) -> None:
        """Go to another folder with everything, and go on there; the index first, by which others tell."""
        try:
            for name in (INDEX, *(name for name in self._files if name != INDEX)):
                move_file(self.path, name, folder)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self.path = folder

    def take_over(self) -> None:
        """Stand where another attempt was that has moved."""
        try:
            move_file(self.path, _NEXT_INDEX, self.path, INDEX)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self._files[INDEX] = self._files.pop(_NEXT_INDEX)

    def event(self, event: Event) -> None:
        """Append one fact."""
        self._append(EVENTS, event_line(event))

    def output(self, rank: int, stream: int, data: bytes, when: float) -> None:
        """Append what a rank printed, once that is settled: of a row that is written over and over, what is last."""
        streams = self._rows.setdefault(rank, {})
        for other, rows in streams.items():
            if other != stream:
                self._settled(rank, other, rows.interrupted(), when)
        self._heard[rank] = when
        self._settled(rank, stream, streams.setdefault(stream, Rows()).feed(data), when)

    def settle(self, *ranks: int) -> None:
        """Append what these ranks printed last, or all of them, whether or not it ends a row."""
        for rank in ranks or tuple(self._rows):
            for stream, rows in self._rows.get(rank, {}).items():
                self._settled(rank, stream, rows.end(), self._heard[rank])

    def trace(self, rank: int, lines: bytes) -> None:
        """Append what a rank's recorder wrote."""
        self._append(f"{TRACE}/{rank_trace(rank)}", lines)

    def close(self) -> None:
        """Close every file."""
        if self._files:
            with suppress(RecordError):  # what cannot be written is lost
                self.settle()
        for file in self._files.values():
            file.close()
        self._files = {}

    def log_path(self, rank: int) -> Path:
        """Where a rank's log is."""
        return self.path / LOGS / rank_log(rank)

    def _settled(self, rank: int, stream: int, data: bytes, when: float) -> None:
        """Append to the log of a rank, and to the index where that stands in it, with stream and time."""
        if data:
            offset = self._offsets.get(rank, 0)
            self._append(f"{LOGS}/{rank_log(rank)}", data)
            self._append(INDEX, json.dumps([rank, stream, offset, len(data), round(when, 6)]).encode() + b"\n")
            self._offsets[rank] = offset + len(data)

    def _append(self, name: str, data: bytes) -> None:
        try:
            file = self._files.get(name)
            if file is None:
                file = self._files[name] = append_to(self.path, name)
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
        except OSError as error:
            raise cannot_write(self.path, error) from error


def cannot_write(path: Path, error: OSError) -> RecordError:
    """The error that says so."""
    return RecordError(
        f"cannot write the record in {path}: {error.strerror or error}",
        "free some space or choose another folder with --runs (pytest: --lab-report=FOLDER)",
    )
