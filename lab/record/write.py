"""Write a record. Facts are appended as they happen, so that an interrupted record contains all earlier facts."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING, Any, BinaryIO

from lab.errors import RecordError
from lab.node.files import remove_tree, write_all
from lab.record import layout
from lab.record.events import Event, event_line
from lab.record.layout import ATTEMPTS, INDEX, LOGS, PLAN, RESULT, RUNS, SCENARIO, TRACE, rank_log, rank_trace
from lab.record.record_files import is_file, list_folder, lock_record, move_file, open_file, read_beginning, write_file
from lab.record.rows import Rows

if TYPE_CHECKING:
    from lab.record.read import Started
    from lab.record.result import Result

LATEST = -1
"""Stands for the number of the last attempt."""


def _writing(path: Path) -> AbstractContextManager[None]:
    """Turn errors of the system into a RecordError."""
    hint = "free some space or choose another folder with --runs (pytest: --lab-report=FOLDER)"
    return RecordError.on_os_error(f"cannot write the record in {path}", hint)


class AttemptWriter:
    """The record of one attempt; raises RecordError if it cannot be written. Most runs have only one attempt."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: dict[str, BinaryIO] = {}
        self._offsets: dict[int, int] = {}
        self._rows: dict[int, dict[int, Rows]] = {}
        """Output that ranks may still overwrite, by rank and stream."""
        self._last_output: dict[int, float] = {}
        """By rank: Unix time of its last output."""
        self.append(INDEX, b"")

    def append(self, name: str, data: bytes) -> None:
        """Append to a file; open it if necessary."""
        with _writing(self.path):
            if name not in self._files:
                self._files[name] = open_file(self.path, name, append=True)
            write_all(self._files[name].fileno(), data)

    def move(self, folder: Path) -> None:
        """Move everything to another folder, and continue there; the index first, which identifies an attempt."""
        with _writing(self.path):
            for name in (INDEX, *(name for name in self._files if name != INDEX)):
                move_file(self.path, name, folder)
        self.path = folder

    def output(self, rank: int, stream: int, data: bytes, when: float) -> None:
        """Append output of a rank once it is settled; of an overwritten row, only its last state."""
        streams = self._rows.setdefault(rank, {})
        for other, rows in streams.items():
            if other != stream:
                self._append_output(rank, other, rows.release_interrupted(), when)
        self._last_output[rank] = when
        self._append_output(rank, stream, streams.setdefault(stream, Rows()).feed(data), when)

    def flush(self, *ranks: int) -> None:
        """Append the remaining output of these ranks, or of all, even if a row has not ended."""
        for rank in ranks or tuple(self._rows):
            for stream, rows in self._rows.get(rank, {}).items():
                self._append_output(rank, stream, rows.end(), self._last_output[rank])

    def close(self) -> None:
        """Close every file."""
        if self._files:
            with suppress(RecordError):  # data that cannot be written is lost
                self.flush()
        while self._files:
            self._files.popitem()[1].close()

    def _append_output(self, rank: int, stream: int, data: bytes, when: float) -> None:
        """Append to the log of a rank, and its position, stream, and time to the index."""
        if data:
            offset = self._offsets.get(rank, 0)
            self.append(f"{LOGS}/{rank_log(rank)}", data)
            self.append(INDEX, json.dumps([rank, stream, offset, len(data), round(when, 6)]).encode() + b"\n")
            self._offsets[rank] = offset + len(data)


class RecordWriter:
    """The record of a run in progress; raises RecordError if it cannot be written."""

    def __init__(self, runs: Path, scenario: str) -> None:
        name = time.strftime(f"%Y%m%d-%H%M%S-{re.sub(r'[^A-Za-z0-9_-]+', '-', scenario) or 'run'}")
        self.path = _new_folder(runs, name)
        self.run = self.path.name
        with _writing(self.path):
            (self.path / LOGS).mkdir()
            self._lock = lock_record(self.path)
        self.attempts = [AttemptWriter(self.path)]
        """In order; the last one is in the folder of the run, earlier ones below it."""
        self.plan: Mapping[str, Any] = {}
        """The plan before the run."""
        self._script = ""

    def describe(self, scenario_text: str, script: Path, plan: Mapping[str, Any], path: str = "") -> None:
        """Write the resolved scenario, its script as it is now, which has this path in the record, and the plan."""
        self._script = path or script.name
        self._write_whole(SCENARIO, scenario_text)
        self._write_whole(self._script, script.read_text(encoding="utf-8", errors="replace"))
        self.describe_foreign(plan)

    def describe_foreign(self, plan: Mapping[str, Any]) -> None:
        """Write the known facts of a job that has no scenario."""
        self.plan = plan
        self._write_json(PLAN, plan)
        self._write_whole(layout.README, layout.render_readme())

    def begin_attempt(self) -> None:
        """Turn the files written so far into the record of an earlier attempt, and begin the next one."""
        earlier, folder = self.attempts[-1], self.path / ATTEMPTS / str(len(self.attempts) - 1)
        earlier.flush()
        earlier.move(folder)
        for attempt in self.attempts[-2:]:  # a run may have a thousand attempts
            attempt.close()  # later messages open its files again
        self.attempts.append(AttemptWriter(self.path))
        for name in filter(None, (SCENARIO, self._script)):
            with suppress(OSError):  # the record works without its text
                write_file(folder, name, read_beginning(self.path, name).encode())

    def write_workers(self, workers: Mapping[str, Any], began: float | None, attempt: int = LATEST) -> None:
        """Add to an attempt's plan which workers met, and when."""
        folder = self.attempts[attempt].path
        if folder == self.path or began is None:
            began = self.plan.get("began", time.time())
        self._write_json(PLAN, {**self.plan, **workers, "began": began}, folder)
        with suppress(OSError):  # records are sorted by this time
            os.utime(folder / PLAN, (began, began), follow_symlinks=False)

    def event(self, event: Event, attempt: int = LATEST) -> None:
        """Append one fact."""
        self.attempts[attempt].append(layout.EVENTS, event_line(event))

    def output(self, rank: int, stream: int, data: bytes, when: float, attempt: int = LATEST) -> None:
        """Append output of a rank once it is settled; of an overwritten row, only its last state."""
        self.attempts[attempt].output(rank, stream, data, when)

    def launcher_output(self, node: str, data: bytes) -> None:
        """Append output of a launcher's process on a node."""
        with _writing(self.path), open_file(self.path, f"{LOGS}/{layout.launcher_log(node)}", append=True) as file:
            write_all(file.fileno(), data)

    def flush(self, *ranks: int, attempt: int = LATEST) -> None:
        """Append the remaining output of these ranks, or of all, even if a row has not ended."""
        self.attempts[attempt].flush(*ranks)

    def trace(self, rank: int, lines: bytes, attempt: int = LATEST) -> None:
        """Append lines of a rank's recorder."""
        self.attempts[attempt].append(f"{TRACE}/{rank_trace(rank)}", lines)

    def write_result(self, result: Result, attempt: int = LATEST) -> None:
        """Write the result of an attempt atomically."""
        self.attempts[attempt].flush()
        self._write_json(RESULT, result.to_json(), self.attempts[attempt].path)

    def finish(self, result: Result) -> None:
        """Write the result atomically, and close."""
        try:
            self.write_result(result)
        finally:
            self.close()

    def assign_ranks(self, started: Started) -> None:
        """Write which processes are the ranks of the last attempt, and rename their traces accordingly.

        Traces of workers that are no ranks get another prefix.
        """
        own = {rank_trace(one.rank) for one in started.ranks if one.process is None}
        with _writing(self.path):
            traces = sorted(list_folder(self.path, TRACE)) if started.ranks else []
            others = [name for name in traces if name.startswith("rank") and name not in own]
            new_names = {name: name.replace("rank", "worker", 1) for name in others}
            for one in started.ranks:
                if one.process is not None and rank_trace(one.process) in traces:
                    new_names[rank_trace(one.process)] = rank_trace(one.rank)
            for name, new_name in new_names.items():
                move_file(self.path, f"{TRACE}/{name}", self.path, f"{TRACE}/{new_name}")
        self._write_json(layout.STARTED, asdict(started))

    def move(self, runs: Path) -> None:
        """Move the record of a run with one attempt to another folder of runs, and continue there."""
        self.close()
        before, self.path = self.path, _new_folder(runs, self.run)
        with _writing(self.path):
            copytree(before, self.path, symlinks=True, dirs_exist_ok=True)
            self._lock = lock_record(self.path)
        remove_tree(before)
        self.attempts[-1].path, self.run = self.path, self.path.name

    def close(self) -> None:
        """Close every file."""
        for attempt in self.attempts:
            attempt.close()
        self._lock.close()

    def discard_if_empty(self) -> None:
        """Remove the record of a run that has neither a plan nor a result."""
        if not any(is_file(self.path, name) for name in (PLAN, RESULT)):
            self.discard()

    def discard(self) -> None:
        """Remove the record."""
        self.close()
        remove_tree(self.path)

    def copy_source(self, folder: Path, name: str, modules: Mapping[str, Path], attempt: int = LATEST) -> None:
        """Copy a source file that a stack or traceback names, to show its lines.

        It is in the scenario's folder, or among the modules that were shipped next to the script.
        """
        source, record = modules.get(name, folder / name).resolve(), self.attempts[attempt].path
        inside = (name in modules or source.is_relative_to(folder.resolve())) and source.is_file()
        if inside and source.suffix == ".py" and not is_file(record, name):
            with suppress(OSError, RecordError):  # the record works without the text of a removed or huge file
                write_file(record, name, read_beginning(source.parent, source.name).encode())

    def log_path(self, rank: int, attempt: int = LATEST) -> Path:
        """Return the path of a rank's log."""
        return self.attempts[attempt].path / LOGS / rank_log(rank)

    def _write_json(self, name: str, data: Any, folder: Path | None = None) -> None:
        self._write_whole(name, json.dumps(data, indent=2), folder)

    def _write_whole(self, name: str, text: str, folder: Path | None = None) -> None:
        with _writing(self.path):
            write_file(folder or self.path, name, text.encode())


def _new_folder(runs: Path, name: str) -> Path:
    """Create the folder of a run; the default folder of runs gets a `.gitignore` next to it."""
    with _writing(runs):
        if not runs.exists():
            own = runs.parts[-2:] == RUNS.parts and not runs.parent.exists()
            runs.mkdir(parents=True, exist_ok=True)
            if own:
                (runs.parent / ".gitignore").write_text("*\n")
        for number in range(1, 1000):
            path = runs / (name if number == 1 else f"{name}-{number}")
            with suppress(FileExistsError):
                path.mkdir()
                return path
    raise RecordError(f"{runs} has 1,000 runs of {name[16:]} from the same second")
