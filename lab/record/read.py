"""Reading records; one that was cut short still opens and says what is missing."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.errors import RecordError
from lab.frozen import dataclass
from lab.node.messages.typed import Misfit, read
from lab.node.statement import problem_with
from lab.record.events import Event, read_event
from lab.record.held import is_held
from lab.record.index import Piece, read_index
from lab.record.layout import (
    ATTEMPTS,
    EVENTS,
    INDEX,
    LOGS,
    MOST_RANKS,
    PLAN,
    PREDICTION,
    RESULT,
    RUNS,
    SCENARIO,
    launcher_log,
    rank_log,
)
from lab.record.result import Result
from lab.words import name_attempts

if TYPE_CHECKING:
    from lab.record.plan import RecordedPlan
    from lab.record.prediction import Prediction

_NON_FINITE = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}


@dataclass(frozen=True, kw_only=True)
class Record:
    """The folder of a run, which is that of its last attempt; or the folder of an earlier attempt, as whole."""

    path: Path

    @property
    def run(self) -> str:
        """Name of the run; of an earlier attempt `RUN/attempts/N`, by which it is found too."""
        of = self.run_of_attempt
        return self.path.name if of is None else f"{of.path.absolute().name}/{ATTEMPTS}/{self.path.name}"

    @property
    def run_of_attempt(self) -> Record | None:
        """The run that an earlier attempt is of; None where this is the run itself."""
        below = self.path.parent.name == ATTEMPTS and self.path.name.isdecimal()
        return Record(path=self.path.parent.parent) if below else None

    def earlier_attempts(self) -> dict[int, Record]:
        """Those before the last one, by number; empty of most runs."""
        folder = self.path / ATTEMPTS
        names = [path.name for path in folder.iterdir() if _is_attempt(path)] if folder.is_dir() else []
        return {number: Record(path=folder / str(number)) for number in sorted(map(int, names))}

    @property
    def number(self) -> int:
        """Which attempt of its run it is; 0 is the first."""
        return int(self.path.name) if self.run_of_attempt is not None else max(self.earlier_attempts(), default=-1) + 1

    def attempt(self, number: int | None) -> Record:
        """The record of an attempt; without a number, this one.

        Raises:
            RecordError: there was no such attempt, or it is not on record any more.
        """
        if number is None or number == self.number:
            return self
        earlier = self.earlier_attempts()
        if number in earlier:
            return earlier[number]
        raise RecordError(f"{self.run} has no attempt {number}; it has {name_attempts([*earlier, self.number])}")

    @property
    def complete(self) -> bool:
        """Whether the run has a result."""
        return (self.path / RESULT).exists()

    @property
    def in_progress(self) -> bool:
        """Whether somebody is still writing it; of an attempt, whether its run goes on."""
        run = self.run_of_attempt or self
        try:
            return is_held(run.path / INDEX)
        except FileNotFoundError:  # one attempt has gone to its own folder, and the next one is about to come
            earlier = run.earlier_attempts()
        try:
            return bool(earlier) and is_held(earlier[max(earlier)].path / INDEX)
        except FileNotFoundError:
            return False

    def began(self) -> float:
        """The Unix time at which it began, as its files tell."""
        return _age(self.path)[0] / 1e9

    def size_bytes(self) -> int:
        """What it takes on the disk, as far as it can be seen."""
        return sum(_size(Path(where, name)) for where, _, names in os.walk(self.path) for name in names)

    def result(self) -> Result:
        """The result; of a run that has none, what is known of it. What is damaged is left out."""
        data, plan = self._json(RESULT), self.plan()
        known: dict[str, Any] = {"scenario": plan.scenario, "engine": plan.engine, "cluster": plan.cluster}
        known = {"run": self.run, **{name: value for name, value in known.items() if value}}
        try:
            found = Result.from_json(known | (data or {}), self.path, lenient=True)
            return replace(found, ranks=tuple(rank for rank in found.ranks if 0 <= rank.rank < MOST_RANKS))
        except Misfit:
            reason = "the result on record is damaged: it has no verdict"
            if self.in_progress:
                reason = "the run goes on: there is no result yet"
            elif data is None:
                reason = "the record ends before a result: the lab was killed, or the run is still going on"
            return Result(verdict="error", reason=reason, **known, duration_s=None, exit_code=1, path=self.path)

    def plan(self) -> RecordedPlan:
        """The plan; what is missing or damaged has its default."""
        from lab.record.plan import RecordedPlan  # who makes a run knows its plan

        found = read(RecordedPlan, self._json(PLAN) or {}, lenient=True)
        return replace(found, workers=tuple(one for one in found.workers if 0 <= one.rank < MOST_RANKS))

    def prediction(self) -> Prediction | None:
        """What was predicted of it, where it was taken as a lesson; what is damaged is left out."""
        from lab.record.prediction import Prediction  # no run has one while it is judged

        data = self._json(PREDICTION)
        return read(Prediction, data, lenient=True) if data else None

    def workers(self) -> dict[int, str]:
        """The node of each worker; empty where the record has no plan."""
        return {worker.rank: worker.node for worker in self.plan().workers}

    def scenario_text(self) -> str:
        """The scenario as it was resolved; empty where it is missing."""
        try:
            return (self.path / SCENARIO).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def events(self) -> Iterator[Event]:
        """Every fact in order; lines that are damaged or cut short are left out."""
        with suppress(OSError), (self.path / EVENTS).open("rb") as file:
            yield from filter(None, map(_event, file))

    def events_from(self, position: int, most_bytes: int) -> tuple[list[Event], int]:
        """The facts since a position in their file, of so many bytes, and the new position; 0 is the beginning."""
        try:
            with (self.path / EVENTS).open("rb") as file:
                file.seek(position)
                lines = file.readlines(most_bytes)
        except OSError:
            return [], position
        whole = [line for line in lines if line.endswith(b"\n")]
        events = [event for line in whole if (event := _event(line)) is not None]
        return events, position + sum(map(len, whole))

    def log(self, rank: int) -> bytes:
        """Everything that a rank printed.

        Raises:
            RecordError: the run had no such rank.
        """
        path = self.path / LOGS / rank_log(rank)
        if not path.exists():
            ranks = sorted(self.workers())
            if rank in ranks:
                return b""
            from lab.record.started import no_log, read_started

            raise no_log(self.run, rank, ranks, read_started(self.path))
        try:
            return path.read_bytes()
        except OSError as error:
            raise RecordError(f"the log of rank {rank} in run {self.run} cannot be read: {error.strerror}") from error

    def launcher_logs(self) -> dict[str, bytes]:
        """What starters printed, of all attempts, by node; empty where agents started the workers."""
        logs = (self.run_of_attempt or self).path / LOGS
        found = ((node, logs / launcher_log(node)) for node in sorted(set(self.workers().values())))
        return {node: path.read_bytes() for node, path in found if path.is_file()}

    def output(self) -> Iterator[Piece]:
        """Everything that all ranks printed, in the order of arrival."""
        yield from self.output_from(0)[0]

    def output_from(self, position: int, most_bytes: float = math.inf) -> tuple[list[Piece], int]:
        """What was printed since a position in the index, about so many bytes, and the new one; 0 is the beginning."""
        try:
            index = (self.path / INDEX).open("rb")
        except OSError:
            return [], position
        pieces, size = [], 0
        with index:
            index.seek(position)
            for line in index:
                if not line.endswith(b"\n") or size >= most_bytes:
                    break
                position += len(line)
                entry = read_index(line)
                if entry is not None:
                    data = self._slice(entry.rank, entry.offset, entry.length)
                    pieces.append(Piece(rank=entry.rank, stream=entry.stream, time=entry.time, data=data))
                    size += len(data)
        return pieces, position

    def _slice(self, rank: int, offset: int, length: int) -> bytes:
        try:
            with (self.path / LOGS / rank_log(rank)).open("rb") as log:
                log.seek(offset)
                return log.read(length)
        except OSError:
            return b""

    def _json(self, name: str) -> dict[str, Any] | None:
        try:
            data = json.loads((self.path / name).read_text(encoding="utf-8"), parse_constant=_NON_FINITE.get)
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(data, dict):
            return None
        return {} if problem_with(data) else data


def _event(line: bytes) -> Event | None:
    try:
        return read_event(json.loads(line))
    except (ValueError, RecursionError):
        return None


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.lstat().st_size
    return 0


def _is_attempt(path: Path) -> bool:
    """Whether a folder is the record of one; it is from when it has an index."""
    return path.name.isdecimal() and path.name == str(int(path.name)) and (path / INDEX).exists()


def list_records(runs: Path = RUNS) -> list[Record]:
    """Every record in a folder of runs, oldest first."""
    if not runs.is_dir():
        return []
    return [Record(path=path) for path in sorted(runs.iterdir(), key=_age) if (path / LOGS).is_dir()]


def _age(path: Path) -> tuple[float, str]:
    try:
        return path.stat().st_mtime_ns if not (path / PLAN).exists() else (path / PLAN).stat().st_mtime_ns, path.name
    except OSError:
        return 0, path.name


def find_record(name: str | None, runs: Path = RUNS) -> Record:
    """The record of that name, path or unique beginning; without a name, the latest.

    Raises:
        RecordError: there is none, or several begin like that.
    """
    records = list_records(runs)
    if name is None:
        if not records:
            raise RecordError(f"there are no runs in {runs}", "start one with `lab run`")
        return records[-1]
    if (Path(name) / LOGS).is_dir():
        return Record(path=Path(name))
    run, below, number = name.rpartition(f"/{ATTEMPTS}/")
    if below and number.isdecimal():
        return find_record(run, runs).attempt(int(number))
    exact = [record for record in records if record.run == name]
    matches = exact or [record for record in records if record.run.startswith(name) or record.run.endswith(f"-{name}")]
    if len(matches) == 1:
        return matches[0]
    if matches and all(record.run.endswith(f"-{name}") for record in matches):
        return matches[-1]
    if matches:
        runs_named = ", ".join(record.run for record in matches[:5])
        raise RecordError(f"{len(matches)} runs begin with {name!r}: {runs_named}")
    from difflib import get_close_matches

    close = get_close_matches(name, [record.run for record in records], n=1)
    raise RecordError(f"there is no run {name!r} in {runs}", f"did you mean {close[0]}?" if close else "see `lab runs`")
