"""Writing a record: facts are appended as they happen, so that a record cut short still tells what came before."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from lab.errors import RecordError
from lab.record.events import Event, event_line
from lab.record.layout import (
    EVENTS,
    INDEX,
    LOGS,
    PLAN,
    README,
    RESULT,
    SCENARIO,
    TRACE,
    rank_log,
    rank_trace,
    readme,
)
from lab.record.rows import Rows

if TYPE_CHECKING:
    from lab.record.result import Result


_LOOKS = 50


class RecordWriter:
    """The record of a run that is going on; a RecordError where it cannot be written."""

    def __init__(self, runs: Path, scenario: str) -> None:
        self.path = _new_folder(runs, scenario)
        self.run = self.path.name
        self._files: dict[str, BinaryIO] = {}
        self._offsets: dict[int, int] = {}
        self._rows: dict[int, dict[int, Rows]] = {}
        """What ranks print and may still write over, by rank and stream."""
        self._heard: dict[int, float] = {}
        try:
            (self.path / LOGS).mkdir()
        except OSError as error:
            raise _cannot(self.path, error) from error
        self._append(INDEX, b"")
        _hold(self._files[INDEX])

    def describe(self, scenario_text: str, script: Path, plan: Mapping[str, Any]) -> None:
        """Keep the scenario as resolved, its script beside it as it is now, and the plan."""
        self._write_whole(SCENARIO, scenario_text)
        self._write_whole(script.name, script.read_text(encoding="utf-8", errors="replace"))
        self._write_whole(PLAN, json.dumps(plan, indent=2))
        self._write_whole(README, readme())

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

    def _settled(self, rank: int, stream: int, data: bytes, when: float) -> None:
        """Append to the log of a rank, and to the index where that stands in it, with stream and time."""
        if data:
            offset = self._offsets.get(rank, 0)
            self._append(f"{LOGS}/{rank_log(rank)}", data)
            self._append(INDEX, json.dumps([rank, stream, offset, len(data), round(when, 6)]).encode() + b"\n")
            self._offsets[rank] = offset + len(data)

    def trace(self, rank: int, lines: bytes) -> None:
        """Append what a rank's recorder wrote."""
        self._append(f"{TRACE}/{rank_trace(rank)}", lines)

    def finish(self, result: Result) -> None:
        """Write the result, whole or not at all, and close."""
        try:
            self.settle()
            self._write_whole(RESULT, json.dumps(result.to_json(), indent=2))
        finally:
            self.close()

    def close(self) -> None:
        """Close every file."""
        if self._files:
            with suppress(RecordError):  # what cannot be written is lost
                self.settle()
        for file in self._files.values():
            file.close()
        self._files = {}

    def discard_if_empty(self) -> None:
        """Remove the record of a run that came neither to a plan nor to a result."""
        if not any((self.path / name).exists() for name in (PLAN, RESULT)):
            self.discard()

    def discard(self) -> None:
        """Remove the record."""
        import shutil

        self.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def keep(self, folder: Path, name: str) -> None:
        """Keep a source of the scenario's folder that a stack or traceback names, so that its lines can be shown."""
        source, target = (folder / name).resolve(), self.path / name
        inside = source.is_relative_to(folder.resolve()) and source.is_file()
        if inside and source.suffix == ".py" and not target.exists():
            with suppress(OSError):  # one that is gone by now is told without its text
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(source.read_bytes())

    def log_path(self, rank: int) -> Path:
        """Where a rank's log is."""
        return self.path / LOGS / rank_log(rank)

    def _append(self, name: str, data: bytes) -> None:
        try:
            file = self._files.get(name)
            if file is None:
                path = self.path / name
                path.parent.mkdir(exist_ok=True)  # the folder of the traces is made for the first of them
                file = self._files[name] = open(path, "ab", buffering=0)
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
        except OSError as error:
            raise _cannot(self.path, error) from error

    def _write_whole(self, name: str, text: str) -> None:
        temporary = self.path / f".{name}.new"
        try:
            temporary.write_text(text, encoding="utf-8")
            os.replace(temporary, self.path / name)
        except OSError as error:
            raise _cannot(self.path, error) from error


def _new_folder(runs: Path, scenario: str) -> Path:
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", scenario) or "run"
    base = f"{time.strftime('%Y%m%d-%H%M%S')}-{plain}"
    try:
        runs.mkdir(parents=True, exist_ok=True)
        for number in range(1, 1000):
            path = runs / (base if number == 1 else f"{base}-{number}")
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return path
    except OSError as error:
        raise _cannot(runs, error) from error
    raise RecordError(f"{runs} holds a thousand runs of {scenario} from this second")


def _hold(file: BinaryIO) -> None:
    """Lock a file until it is closed or this process is dead: so one can see that the run goes on."""
    for _ in range(_LOOKS):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:  # somebody is just looking whether it is locked
            time.sleep(0.001)
        except OSError:  # a file system without locks
            return


def _cannot(path: Path, error: OSError) -> RecordError:
    return RecordError(
        f"cannot write the record in {path}: {error.strerror or error}",
        "free some space or choose another folder with --runs",
    )
