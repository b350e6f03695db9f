"""Write a record: facts are appended as they happen, so that a record cut short still tells what came before."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from lab.errors import RecordError
from lab.record import layout
from lab.record.events import Event, event_line
from lab.record.layout import ATTEMPTS, INDEX, LOGS, PLAN, RESULT, RUNS, SCENARIO, TRACE, rank_log, rank_trace
from lab.record.record_files import is_file, list_folder, lock_record, move_file, open_file, read_beginning, write_file
from lab.record.rows import Rows

if TYPE_CHECKING:
    from lab.record.read import Started
    from lab.record.result import Result

_KEPT_OPEN = 3
"""Files of so many attempts are open: there may be a thousand of them."""
LATEST = -1
"""In the place of an attempt's number."""


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn what the system says of a record that cannot be written into a RecordError."""
    try:
        yield
    except OSError as error:
        hint = "free some space or choose another folder with --runs (pytest: --lab-report=FOLDER)"
        raise RecordError(f"cannot write the record in {path}: {error.strerror or error}", hint) from error


def _append(file: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


class AttemptWriter:
    """What one attempt of a run leaves; a RecordError where it cannot be written. Most runs have but one attempt."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: dict[str, BinaryIO] = {}
        self._offsets: dict[int, int] = {}
        self._rows: dict[int, dict[int, Rows]] = {}
        """What ranks print and may still write over, by rank and stream."""
        self._last_output: dict[int, float] = {}
        """By rank: Unix time at which it last printed."""
        self.append(INDEX, b"")

    def append(self, name: str, data: bytes) -> None:
        """Append to a file, which is opened where it is not yet."""
        with _writing(self.path):
            if name not in self._files:
                self._files[name] = open_file(self.path, name, append=True)
            _append(self._files[name], data)

    def move(self, folder: Path) -> None:
        """Go to another folder with everything, and go on there; the index first, by which others tell."""
        with _writing(self.path):
            for name in (INDEX, *(name for name in self._files if name != INDEX)):
                move_file(self.path, name, folder)
        self.path = folder

    def output(self, rank: int, stream: int, data: bytes, when: float) -> None:
        """Append what a rank printed, once that is settled: of a row that is written over and over, what is last."""
        streams = self._rows.setdefault(rank, {})
        for other, rows in streams.items():
            if other != stream:
                self._append_output(rank, other, rows.release_interrupted(), when)
        self._last_output[rank] = when
        self._append_output(rank, stream, streams.setdefault(stream, Rows()).feed(data), when)

    def flush(self, *ranks: int) -> None:
        """Append what these ranks printed last, or all of them, whether or not it ends a row."""
        for rank in ranks or tuple(self._rows):
            for stream, rows in self._rows.get(rank, {}).items():
                self._append_output(rank, stream, rows.end(), self._last_output[rank])

    def close(self) -> None:
        """Close every file."""
        if self._files:
            with suppress(RecordError):  # what cannot be written is lost
                self.flush()
        for file in self._files.values():
            file.close()
        self._files = {}

    def _append_output(self, rank: int, stream: int, data: bytes, when: float) -> None:
        """Append to the log of a rank, and to the index where that stands in it, with stream and time."""
        if data:
            offset = self._offsets.get(rank, 0)
            self.append(f"{LOGS}/{rank_log(rank)}", data)
            self.append(INDEX, json.dumps([rank, stream, offset, len(data), round(when, 6)]).encode() + b"\n")
            self._offsets[rank] = offset + len(data)


class RecordWriter:
    """The record of a run that is going on; a RecordError where it cannot be written."""

    def __init__(self, runs: Path, scenario: str) -> None:
        self.path = _new_folder(runs, scenario)
        self.run = self.path.name
        with _writing(self.path):
            (self.path / LOGS).mkdir()
            self._lock = lock_record(self.path)
        self.attempts = [AttemptWriter(self.path)]
        """In order; the last one stands in the folder of the run, those before it below."""
        self.plan: Mapping[str, Any] = {}
        """As it was before the run."""
        self._script = ""

    def describe(self, scenario_text: str, script: Path, plan: Mapping[str, Any]) -> None:
        """Keep the scenario as resolved, its script beside it as it is now, and the plan."""
        self._script = script.name
        self._write_whole(SCENARIO, scenario_text)
        self._write_whole(script.name, script.read_text(encoding="utf-8", errors="replace"))
        self.describe_foreign(plan)

    def describe_foreign(self, plan: Mapping[str, Any]) -> None:
        """Keep what is known of a job that was not made of a scenario."""
        self.plan = plan
        self._write_json(PLAN, plan)
        self._write_whole(layout.README, layout.render_readme())

    def begin_attempt(self) -> None:
        """What was written so far becomes the record of an earlier attempt, and that of the next one begins."""
        earlier, folder = self.attempts[-1], self.path / ATTEMPTS / str(len(self.attempts) - 1)
        earlier.flush()
        earlier.move(folder)
        self.attempts.append(AttemptWriter(self.path))
        for old in self.attempts[-_KEPT_OPEN - 1 : -_KEPT_OPEN]:
            old.close()  # what is still heard of it opens its files again
        for name in filter(None, (SCENARIO, self._script)):
            with suppress(OSError):  # it is told without its text
                write_file(folder, name, read_beginning(self.path, name).encode())

    def write_workers(self, workers: Mapping[str, Any], began: float | None, attempt: int = LATEST) -> None:
        """Put what was not known before an attempt began into its plan: who met there, and when."""
        folder = self.attempts[attempt].path
        if folder == self.path or began is None:
            began = self.plan.get("began", time.time())
        self._write_json(PLAN, {**self.plan, **workers, "began": began}, folder)
        with suppress(OSError):  # by this time records are put in order
            os.utime(folder / PLAN, (began, began), follow_symlinks=False)

    def event(self, event: Event, attempt: int = LATEST) -> None:
        """Append one fact."""
        self.attempts[attempt].append(layout.EVENTS, event_line(event))

    def output(self, rank: int, stream: int, data: bytes, when: float, attempt: int = LATEST) -> None:
        """Append what a rank printed, once that is settled: of a row that is written over and over, what is last."""
        self.attempts[attempt].output(rank, stream, data, when)

    def launcher_output(self, node: str, data: bytes) -> None:
        """Append what a launcher's own process on a node printed."""
        name = f"{LOGS}/{layout.launcher_log(node)}"
        with _writing(self.path), open_file(self.path, name, append=True) as file:
            _append(file, data)

    def flush(self, *ranks: int, attempt: int = LATEST) -> None:
        """Append what these ranks printed last, or all of them, whether or not it ends a row."""
        self.attempts[attempt].flush(*ranks)

    def trace(self, rank: int, lines: bytes, attempt: int = LATEST) -> None:
        """Append what a rank's recorder wrote."""
        self.attempts[attempt].append(f"{TRACE}/{rank_trace(rank)}", lines)

    def write_result(self, result: Result, attempt: int = LATEST) -> None:
        """Write the result of an attempt, whole or not at all."""
        self.attempts[attempt].flush()
        self._write_json(RESULT, result.to_json(), self.attempts[attempt].path)

    def finish(self, result: Result) -> None:
        """Write the result, whole or not at all, and close."""
        try:
            self.write_result(result)
        finally:
            self.close()

    def assign_ranks(self, started: Started) -> None:
        """Say which processes are the ranks of the last attempt, and name their traces as those of ranks are.

        Of workers that are none, the traces keep theirs with another beginning.
        """
        own = {rank_trace(one.rank) for one in started.ranks if one.process is None}
        with _writing(self.path):
            traces = sorted(list_folder(self.path, TRACE)) if started.ranks else []
            new_names = {
                name: name.replace("rank", "worker", 1)
                for name in traces
                if name.startswith("rank") and name not in own
            }
            for one in started.ranks:
                if one.process is not None and rank_trace(one.process) in traces:
                    new_names[rank_trace(one.process)] = rank_trace(one.rank)
            for name, new_name in new_names.items():
                move_file(self.path, f"{TRACE}/{name}", self.path, f"{TRACE}/{new_name}")
        self._write_json(layout.STARTED, asdict(started))

    def close(self) -> None:
        """Close every file."""
        for attempt in self.attempts:
            attempt.close()
        self._lock.close()

    def discard_if_empty(self) -> None:
        """Remove the record of a run that came neither to a plan nor to a result."""
        if not any(is_file(self.path, name) for name in (PLAN, RESULT)):
            self.discard()

    def discard(self) -> None:
        """Remove the record."""
        from lab.node.files import remove_tree

        self.close()
        remove_tree(self.path)

    def copy_source(self, folder: Path, name: str, attempt: int = LATEST) -> None:
        """Keep a source of the scenario's folder that a stack or traceback names, so that its lines can be shown."""
        source, record = (folder / name).resolve(), self.attempts[attempt].path
        inside = source.is_relative_to(folder.resolve()) and source.is_file()
        if inside and source.suffix == ".py" and not is_file(record, name):
            with suppress(OSError):  # one that is gone by now is told without its text
                write_file(record, name, source.read_bytes())

    def log_path(self, rank: int, attempt: int = LATEST) -> Path:
        """Where a rank's log is."""
        return self.attempts[attempt].path / LOGS / rank_log(rank)

    def _write_json(self, name: str, data: Any, folder: Path | None = None) -> None:
        self._write_whole(name, json.dumps(data, indent=2), folder)

    def _write_whole(self, name: str, text: str, folder: Path | None = None) -> None:
        with _writing(self.path):
            write_file(folder or self.path, name, text.encode())


def _new_folder(runs: Path, scenario: str) -> Path:
    """Make the folder of a run; the lab's own folder of runs is made in one that git leaves alone."""
    base = f"{time.strftime('%Y%m%d-%H%M%S')}-{re.sub(r'[^A-Za-z0-9_-]+', '-', scenario) or 'run'}"
    with _writing(runs):
        if not runs.exists():
            own = runs.parts[-2:] == RUNS.parts and not runs.parent.exists()
            runs.mkdir(parents=True, exist_ok=True)
            if own:
                (runs.parent / ".gitignore").write_text("*\n")
        for number in range(1, 1000):
            path = runs / (base if number == 1 else f"{base}-{number}")
            with suppress(FileExistsError):
                path.mkdir()
                return path
    raise RecordError(f"{runs} holds a thousand runs of {scenario} from this second")
