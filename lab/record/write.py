"""Write a record: facts are appended as they happen, so that a record cut short still tells what came before."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from lab.errors import RecordError
from lab.record.events import Event, event_line
from lab.record.layout import (
    ATTEMPTS,
    EVENTS,
    INDEX,
    LOGS,
    PLAN,
    README,
    RESULT,
    RUNS,
    SCENARIO,
    STARTED,
    TRACE,
    launcher_log,
    rank_log,
    rank_trace,
    readme,
)
from lab.record.record_files import append_to, hold, is_file, list_folder, move_file, read_beginning, write_file
from lab.record.rows import Rows

if TYPE_CHECKING:
    from lab.record.read import Started
    from lab.record.result import Result

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


_KEPT_OPEN = 3
"""Files of so many attempts are open: there may be a thousand of them."""
LATEST = -1
"""In the place of an attempt's number."""


class RecordWriter:
    """The record of a run that is going on; a RecordError where it cannot be written."""

    def __init__(self, runs: Path, scenario: str) -> None:
        self.path = _new_folder(runs, scenario)
        self.run = self.path.name
        try:
            (self.path / LOGS).mkdir()
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self.attempts = [AttemptWriter(self.path)]
        """In order; the last one stands in the folder of the run, those before it below."""
        self.plan: Mapping[str, Any] = {}
        """As it was before the run."""
        self._script = ""
        self._launchers: dict[str, BinaryIO] = {}
        """Logs of launchers, by node."""

    def describe(self, scenario_text: str, script: Path, plan: Mapping[str, Any]) -> None:
        """Keep the scenario as resolved, its script beside it as it is now, and the plan."""
        self.plan, self._script = plan, script.name
        self._write_whole(SCENARIO, scenario_text)
        self._write_whole(script.name, script.read_text(encoding="utf-8", errors="replace"))
        self._write_whole(PLAN, json.dumps(plan, indent=2))
        self._write_whole(README, readme())

    def describe_foreign(self, plan: Mapping[str, Any]) -> None:
        """Keep what is known of a job that was not made of a scenario."""
        self.plan = plan
        self._write_whole(PLAN, json.dumps(plan, indent=2))
        self._write_whole(README, readme())

    def begin_attempt(self) -> None:
        """What was written so far becomes the record of an earlier attempt, and that of the next one begins."""
        earlier, folder = self.attempts[-1], self.path / ATTEMPTS / str(len(self.attempts) - 1)
        later = AttemptWriter(self.path, waits=True)
        earlier.settle()
        earlier.move(folder)
        later.take_over()
        self.attempts.append(later)
        for old in self.attempts[-_KEPT_OPEN - 1 : -_KEPT_OPEN]:
            old.close()  # what is still heard of it opens its files again
        for name in filter(None, (SCENARIO, self._script)):
            with suppress(OSError):  # it is told without its text
                write_file(folder, name, read_beginning(self.path, name).encode())

    def tell_workers(self, workers: Mapping[str, Any], began: float | None, attempt: int = LATEST) -> None:
        """Put what was not known before an attempt began into its plan: who met there, and when."""
        folder = self.attempts[attempt].path
        if folder == self.path or began is None:
            began = self.plan.get("began", time.time())
        self._write_whole(PLAN, json.dumps({**self.plan, **workers, "began": began}, indent=2), folder)
        with suppress(OSError):  # by this time records are put in order
            os.utime(folder / PLAN, (began, began), follow_symlinks=False)

    def event(self, event: Event, attempt: int = LATEST) -> None:
        """Append one fact."""
        self.attempts[attempt].event(event)

    def output(self, rank: int, stream: int, data: bytes, when: float, attempt: int = LATEST) -> None:
        """Append what a rank printed, once that is settled: of a row that is written over and over, what is last."""
        self.attempts[attempt].output(rank, stream, data, when)

    def launcher_output(self, node: str, data: bytes) -> None:
        """Append what a launcher's own process on a node printed."""
        try:
            if node not in self._launchers:
                self._launchers[node] = append_to(self.path, f"{LOGS}/{launcher_log(node)}")
            view = memoryview(data)
            while view:
                view = view[self._launchers[node].write(view) :]
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def settle(self, *ranks: int, attempt: int = LATEST) -> None:
        """Append what these ranks printed last, or all of them, whether or not it ends a row."""
        self.attempts[attempt].settle(*ranks)

    def trace(self, rank: int, lines: bytes, attempt: int = LATEST) -> None:
        """Append what a rank's recorder wrote."""
        self.attempts[attempt].trace(rank, lines)

    def write_result(self, result: Result, attempt: int) -> None:
        """Write the result of an earlier attempt, whole or not at all."""
        self.attempts[attempt].settle()
        self._write_whole(RESULT, json.dumps(result.to_json(), indent=2), self.attempts[attempt].path)

    def place(self, started: Started) -> None:
        """Say which processes are the ranks of the last attempt, and name their traces as those of ranks are.

        Of workers that are none, the traces keep theirs with another beginning.
        """
        kept = {one.rank for one in started.ranks if one.process is None}
        try:
            if started.ranks:
                traces, own = sorted(list_folder(self.path, TRACE)), {rank_trace(rank) for rank in kept}
                for name in traces:
                    if name.startswith("rank") and name not in own:
                        self._rename_trace(name, name.replace("rank", "worker", 1))
                for one in started.ranks:
                    if one.process is not None and rank_trace(one.process) in traces:
                        self._rename_trace(rank_trace(one.process), rank_trace(one.rank))
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self._write_whole(STARTED, json.dumps(asdict(started), indent=2))

    def _rename_trace(self, name: str, new_name: str) -> None:
        move_file(self.path, f"{TRACE}/{name}", self.path, f"{TRACE}/{new_name}")

    def finish(self, result: Result) -> None:
        """Write the result, whole or not at all, and close."""
        try:
            self.settle()
            self._write_whole(RESULT, json.dumps(result.to_json(), indent=2))
        finally:
            self.close()

    def close(self) -> None:
        """Close every file."""
        for attempt in self.attempts:
            attempt.close()
        for file in self._launchers.values():
            file.close()
        self._launchers = {}

    def discard_if_empty(self) -> None:
        """Remove the record of a run that came neither to a plan nor to a result."""
        if not any(is_file(self.path, name) for name in (PLAN, RESULT)):
            self.discard()

    def discard(self) -> None:
        """Remove the record."""
        from lab.node.remove import remove_tree

        self.close()
        remove_tree(self.path)

    def keep(self, folder: Path, name: str, attempt: int = LATEST) -> None:
        """Keep a source of the scenario's folder that a stack or traceback names, so that its lines can be shown."""
        source, record = (folder / name).resolve(), self.attempts[attempt].path
        inside = source.is_relative_to(folder.resolve()) and source.is_file()
        if inside and source.suffix == ".py" and not is_file(record, name):
            with suppress(OSError):  # one that is gone by now is told without its text
                write_file(record, name, source.read_bytes())

    def log_path(self, rank: int, attempt: int = LATEST) -> Path:
        """Where a rank's log is."""
        return self.attempts[attempt].log_path(rank)

    def _write_whole(self, name: str, text: str, folder: Path | None = None) -> None:
        try:
            write_file(folder or self.path, name, text.encode())
        except OSError as error:
            raise cannot_write(self.path, error) from error


def _make(runs: Path) -> None:
    """Make the folder of all runs; the lab's own lies in one that git leaves alone."""
    own = runs.parent if runs.parts[-2:] == RUNS.parts and not runs.parent.exists() else None
    runs.mkdir(parents=True, exist_ok=True)
    if own is not None:
        (own / ".gitignore").write_text("*\n")


def _new_folder(runs: Path, scenario: str) -> Path:
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", scenario) or "run"
    base = f"{time.strftime('%Y%m%d-%H%M%S')}-{plain}"
    try:
        if not runs.exists():
            _make(runs)
        for number in range(1, 1000):
            path = runs / (base if number == 1 else f"{base}-{number}")
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return path
    except OSError as error:
        raise cannot_write(runs, error) from error
    raise RecordError(f"{runs} holds a thousand runs of {scenario} from this second")
