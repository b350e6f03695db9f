"""Read records. An interrupted record still opens, and reports what is missing."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from lab.errors import NotInRecord, RecordError
from lab.frozen import Frozen
from lab.node.messages.agent import is_joined
from lab.node.messages.typed import Misfit, read_typed
from lab.node.statement import problem_with
from lab.plan.plan import WorkerPlan
from lab.record import layout
from lab.record import record_files as files
from lab.record.events import Event, read_event
from lab.record.layout import ATTEMPTS, LOGS, MOST_RANKS, RUNS
from lab.record.result import Result
from lab.words import name_attempts

_LONGEST_LOG = 1 << 50
_LONGEST_PIECE = 1 << 26
_LONGEST_LINE = 1 << 12
_LATEST = 1e11
"""Larger indices, sizes, and Unix times are damage."""
_MOST_OPEN = 64
"""Logs that are open at the same time: a run may have thousands of ranks."""


class Piece(NamedTuple):
    """A piece of a rank's output."""

    rank: int
    stream: int
    """1: standard output, 2: standard error, 3: the terminal of the rank."""
    time: float
    """Unix time at which the agent read it."""
    data: bytes


class IndexEntry(NamedTuple):
    """The position of a piece of output in the log of its rank."""

    rank: int
    stream: int
    offset: int
    length: int
    time: float


class IndexReader:
    """Reads the index of a record in parts. A line that names the same part of a log again is damage."""

    def __init__(self, position: int = 0) -> None:
        self.position = position
        """Offset of the next line of the index."""
        self._ends: dict[int, int] = {}
        """By rank: the end of the named part of its log."""

    def read(self, index: BinaryIO) -> Iterator[IndexEntry]:
        """Yield new entries of complete lines, without damaged ones."""
        index.seek(self.position)
        for line in files.read_lines(index, _LONGEST_LINE):
            if not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
                return
            self.position = self.position + len(line) if line.endswith(b"\n") else index.tell()
            entry = _read_entry(line)
            if entry is None or (entry.rank not in self._ends and len(self._ends) > layout.MOST_SHOWN_RANKS):
                continue
            if entry.offset >= self._ends.get(entry.rank, 0):
                self._ends[entry.rank] = entry.offset + entry.length
                yield entry


def _read_entry(line: bytes) -> IndexEntry | None:
    """Parse a line of the index; None if it is damaged."""
    try:
        rank, stream, offset, length, when = files.parse_line(line)
        entry = IndexEntry(int(rank), int(stream), int(offset), int(length), float(when))
    except (ArithmeticError, TypeError, ValueError):
        return None
    sane = -1 <= entry.rank < MOST_RANKS and 0 <= entry.offset < _LONGEST_LOG and 0 <= entry.length < _LONGEST_PIECE
    return entry if sane and 0 <= entry.time < _LATEST else None


def read_output(folder: Path, reader: IndexReader, most_bytes: float = math.inf) -> Iterator[Piece]:
    """Yield new pieces of output, about this many bytes of them.

    Raises:
        RecordError: a file is refused.
    """
    try:
        index = files.open_file(folder, layout.INDEX, files.MOST_LINES_BYTES)
    except OSError:
        return
    size, logs = 0, dict[int, BinaryIO]()
    try:
        with index:
            for entry in reader.read(index):
                data = _read_piece(folder, logs, entry)
                yield Piece(rank=entry.rank, stream=entry.stream, time=entry.time, data=data)
                size += len(data)
                if size >= most_bytes:
                    return
    finally:
        for log in logs.values():
            log.close()


def _read_piece(folder: Path, logs: dict[int, BinaryIO], entry: IndexEntry) -> bytes:
    """Read a piece of output, as far as it exists; `logs` are open logs by rank."""
    with suppress(OSError):
        if entry.rank not in logs:
            if len(logs) >= _MOST_OPEN:
                logs.pop(next(iter(logs))).close()
            logs[entry.rank] = files.open_file(folder, f"{LOGS}/{layout.rank_log(entry.rank)}", files.MOST_LOG_BYTES)
        logs[entry.rank].seek(entry.offset)
        return logs[entry.rank].read(entry.length)
    return b""


class LineJoiner:
    """Joins pieces of output to lines, whose time is that of their first piece.

    Args:
        longest_bytes: longer lines are returned in parts.
    """

    def __init__(self, longest_bytes: float = math.inf) -> None:
        self._longest_bytes = longest_bytes
        self._begun: dict[tuple[int, int], Piece] = {}
        """By rank and stream: the beginning of a line."""

    def join(self, piece: Piece) -> Iterator[Piece]:
        """Yield the lines that this piece completes, without line ends."""
        begun = self._begun.pop(piece[:2], None)
        first, *others = piece.data.split(b"\n")
        line = piece._replace(data=first) if begun is None else begun._replace(data=begun.data + first)
        for other in others:
            yield line
            line = piece._replace(data=other)
        if len(line.data) > self._longest_bytes:
            yield line
        elif line.data:
            self._begun[piece[:2]] = line

    def rest(self) -> list[Piece]:
        """Return the remaining incomplete lines at the end."""
        begun, self._begun = self._begun, {}
        return [piece for _, piece in sorted(begun.items())]


class Turn(Frozen):
    """The position of a run in a suite: runs that one command made, one after the other."""

    suite: str = ""
    """Name of the suite: the time at which it began."""
    number: int = 0
    """From 1."""
    of: int = 0
    """The number of planned runs."""
    case: str = ""
    """The name that `lab test` gives it, with its position in the matrix; empty in other suites."""
    attempt: int = 1
    """Above 1 if it was retried after a failure."""


class RecordedPlan(Frozen):
    """The content of `plan.json`; missing or damaged fields have their defaults."""

    scenario: str = ""
    script: str = ""
    engine: str = ""
    cluster: str = ""
    nnodes: int | None = None
    nproc_per_node: int | None = None
    master_addr: str = ""
    master_port: int | None = None
    cold: bool | None = None
    timeout_s: float | None = None
    memory_bytes: int | None = None
    """Memory limit of a node."""
    stepped: bool = False
    """Whether its ranks were held before each call, so that its times are meaningless."""
    turn: Turn | None = None
    """Its position in a suite; None for a single run."""
    faults: tuple[dict[str, Any], ...] = ()
    """The planned faults, each as in a scenario."""
    workers: tuple[WorkerPlan, ...] = ()
    """Empty if the record has no plan."""


class StartedRank(Frozen):
    """One rank, and its process."""

    rank: int
    node: str = ""
    worker: int = 0
    """Rank of the worker that started it, or that it is."""
    process: int | None = None
    """Its number among processes that joined a group (`lab/node/messages/agent.py`); None: it is the worker itself."""


class Started(Frozen):
    """The content of `started.json`: which processes that scripts started are the ranks of the run.

    Without such ranks, the workers are the ranks, and all of these processes are additional.
    """

    ranks: tuple[StartedRank, ...] = ()
    world_size: int = 0
    """The world size that they report."""
    aside: tuple[int, ...] = ()
    """Numbers of processes that are no ranks of the run: they met in other groups, or earlier."""


class Record(Frozen):
    """The folder of a run, which is that of its last attempt; or the folder of an earlier attempt."""

    path: Path

    @property
    def run(self) -> str:
        """Name of the run; for an earlier attempt `RUN/attempts/N`, which also finds it."""
        of = self.run_of_attempt
        return self.path.name if of is None else f"{of.path.absolute().name}/{ATTEMPTS}/{self.path.name}"

    @property
    def run_of_attempt(self) -> Record | None:
        """The run of an earlier attempt; None if this is the run itself."""
        below = self.path.parent.name == ATTEMPTS and self.path.name.isdecimal()
        return Record(path=self.path.parent.parent) if below else None

    def earlier_attempts(self) -> dict[int, Record]:
        """Return the attempts before the last one, by number; an attempt exists once it has an index."""
        names: list[str] = []
        if self.run_of_attempt is None:
            with suppress(OSError):
                names = files.list_names(self.path, ATTEMPTS)
        numbers = sorted(int(name) for name in names if name.isdecimal() and name == str(int(name)))
        folders = {number: self.path / ATTEMPTS / str(number) for number in numbers}
        return {number: Record(path=path) for number, path in folders.items() if files.is_file(path, layout.INDEX)}

    @property
    def number(self) -> int:
        """The number of this attempt; the first is 0."""
        return int(self.path.name) if self.run_of_attempt is not None else max(self.earlier_attempts(), default=-1) + 1

    def attempt(self, number: int | None) -> Record:
        """Return the record of an attempt; without a number, this one.

        Raises:
            RecordError: there was no such attempt, or its record no longer exists.
        """
        if number is None or number == self.number:
            return self
        earlier = self.earlier_attempts()
        if number in earlier:
            return earlier[number]
        raise NotInRecord(f"{self.run} has no attempt {number}; it has {name_attempts([*earlier, self.number])}")

    @property
    def complete(self) -> bool:
        """Whether the run has a result."""
        return files.is_file(self.path, layout.RESULT)

    @property
    def in_progress(self) -> bool:
        """Whether its run is still writing records."""
        return files.is_held((self.run_of_attempt or self).path)

    def began(self) -> float:
        """Return the Unix time at which it began, according to its files."""
        return _age(self.path)[0] / 1e9

    def size_bytes(self) -> int:
        """Return its size on the disk."""
        return files.measure_tree(self.path)

    def result(self) -> Result:
        """Return the result; for a run without one, the known facts. Leave out damaged fields."""
        data, plan = self.json(layout.RESULT, "ranks", "parents"), self.plan()
        facts = {"run": self.run, "scenario": plan.scenario, "engine": plan.engine, "cluster": plan.cluster}
        known: dict[str, Any] = {name: value for name, value in facts.items() if value}
        try:
            result = Result.from_json(known | (data or {}), self.path, lenient=True)
            return replace(result, ranks=_possible(result.ranks))
        except Misfit:
            if self.in_progress:
                return self._without_result("the run is in progress: there is no result yet", "running", **known)
            reason = "the record ends before a result: the lab was killed, or the run is still in progress"
            damaged = "the recorded result is damaged: it has no verdict"
            return self._without_result(reason if data is None else damaged, **known)

    def result_or_refusal(self) -> Result:
        """Return the result, for a list of records; if the record is refused, the reason says so."""
        try:
            return self.result()
        except RecordError as error:
            return self._without_result(error.message, run=self.run)

    def _without_result(self, reason: str, verdict: Literal["error", "running"] = "error", **known: Any) -> Result:
        return Result(verdict=verdict, reason=reason, **known, duration_s=None, exit_code=1, path=self.path)

    def plan(self) -> RecordedPlan:
        """Return the plan; missing or damaged fields have their defaults."""
        plan = read_typed(RecordedPlan, self.json(layout.PLAN, "workers") or {}, lenient=True)
        return replace(plan, workers=_possible(plan.workers))

    def readable_plan(self) -> RecordedPlan:
        """Return the plan, for a search in several records; if the record is refused, the defaults."""
        with suppress(RecordError):
            return self.plan()
        return RecordedPlan()

    def started(self) -> Started | None:
        """Return which processes are ranks, without damaged entries; None if no script started one."""
        if (data := self.json(layout.STARTED, "ranks")) is None:
            return None
        started = read_typed(Started, data, lenient=True)
        return replace(started, ranks=_possible(started.ranks))

    def workers(self) -> dict[int, str]:
        """Return the node of each worker; empty if the record has no plan."""
        return {worker.rank: worker.node for worker in self.plan().workers}

    def ranks(self) -> dict[int, str]:
        """Return the node of each rank: of the workers, unless scripts started the ranks; empty if unknown."""
        started = self.started()
        return {one.rank: one.node for one in started.ranks} if started and started.ranks else self.workers()

    def scenario_text(self) -> str:
        """Return the resolved scenario; empty if it is missing."""
        with suppress(OSError):
            return files.read_beginning(self.path, layout.SCENARIO)
        return ""

    def events(self) -> Iterator[Event]:
        """Iterate over the facts in order, without damaged lines."""
        try:
            stat = (self.path / layout.EVENTS).lstat()
        except OSError:
            return iter(())
        return iter(_events(self.path, stat.st_ino, stat.st_size, stat.st_mtime_ns))

    def open_log(self, rank: int) -> BinaryIO:
        """Open the output of a rank.

        Raises:
            RecordError: the run had no such rank, or its log is refused.
        """
        try:
            return files.open_file(self.path, f"{LOGS}/{layout.rank_log(rank)}", files.MOST_LOG_BYTES)
        except FileNotFoundError:
            if rank in (workers := sorted(self.workers())):
                return io.BytesIO()
            started = (self.started() or Started()).ranks
        except OSError as error:
            raise RecordError(f"the log of rank {rank} in run {self.run} cannot be read: {error.strerror}") from error
        worker = next((one.worker for one in started if one.rank == rank and one.process is not None), None)
        if worker is not None:
            hint = f"its output is in the log of that worker: --rank {worker}"
            raise NotInRecord(f"rank {rank} was started by worker {worker} and has no log of its own", hint)
        known = f"ranks 0 to {workers[-1]}" if workers else "no recorded ranks"
        raise NotInRecord(f"run {self.run} has no rank {rank}; it has {known}")

    def log(self, rank: int) -> bytes:
        """Return the output of a rank; raises as `open_log`."""
        with self.open_log(rank) as log:
            return log.read(files.MOST_LOG_BYTES)

    def launcher_logs(self) -> dict[str, bytes]:
        """Return the output of starters in all attempts, by node; empty if agents started the workers."""
        run, logs = (self.run_of_attempt or self).path, dict[str, bytes]()
        for node in sorted(set(self.workers().values())):
            with suppress(OSError):
                logs[node] = files.read_file(run, f"{LOGS}/{layout.launcher_log(node)}", files.MOST_LOG_BYTES)
        return logs

    def output(self) -> Iterator[Piece]:
        """Iterate over the output of all ranks, in the order of arrival."""
        return read_output(self.path, IndexReader())

    def json(self, name: str, *of_ranks: str) -> dict[str, Any] | None:
        """Return the JSON object in a file of the record; None if there is none. An impossible object becomes empty.

        Args:
            name: of the file.
            of_ranks: names of its lists that have an item for each rank.

        Raises:
            RecordError: it is refused, or the lists are longer than any run has ranks.
        """
        try:
            data = files.read_json(self.path, name)
        except (OSError, ValueError):
            return None
        if not isinstance(data, dict):
            return None
        counted = (data.get(key) for key in of_ranks)
        files.refuse_excess_ranks(self.path, name, sum(len(one) for one in counted if isinstance(one, list)))
        return {} if problem_with(data) else data


@lru_cache(maxsize=2)  # a view asks several times, and a comparison asks two records
def _events(path: Path, *_version: int) -> tuple[Event, ...]:
    """Return the facts in a file of this version; empty if it cannot be read."""
    events = list[Event]()
    ranks = set[int]()
    with suppress(OSError), files.open_file(path, layout.EVENTS, files.MOST_LINES_BYTES) as file:
        for event in map(parse_event, files.read_lines(file)):
            if event is None:
                continue
            rank = getattr(event, "rank", None)
            if rank is not None and rank not in ranks and not is_joined(rank):
                ranks.add(rank)  # one of them is what a launcher's process is called
                files.refuse_excess_ranks(path, layout.EVENTS, len(ranks) - 1)
            events.append(event)
    return tuple(events)


def parse_event(line: bytes) -> Event | None:
    """Parse the event on a line; None if it is damaged."""
    return read_event(files.parse_line(line))


def _possible(ranks: Any) -> Any:
    """Return the items whose number is possible for a rank."""
    return tuple(one for one in ranks if 0 <= one.rank < MOST_RANKS)


def list_records(runs: Path = RUNS) -> list[Record]:
    """Return every record in a folder of runs, oldest first; links are skipped."""
    if not runs.is_dir():
        return []
    paths = (path for path in runs.iterdir() if files.is_record(path) and not path.is_symlink())
    return [Record(path=path) for path in sorted(paths, key=_age)]


def _age(path: Path) -> tuple[float, str]:
    for described in (path / layout.PLAN, path):
        with suppress(OSError):
            return described.lstat().st_mtime_ns, path.name
    return 0, path.name


def find_record(name: str | None, runs: Path = RUNS) -> Record:
    """Find a record by its name, path, or unique prefix; without a name, the latest.

    Raises:
        RecordError: there is none, or several match.
    """
    records = list_records(runs)
    if name is None:
        if not records:
            raise NotInRecord(f"there are no runs in {runs}", "start one with `lab run`")
        return records[-1]
    if files.is_record(Path(name)):
        return Record(path=Path(name))
    run, below, number = name.rpartition(f"/{ATTEMPTS}/")
    if below and number.isdecimal():
        return find_record(run, runs).attempt(int(number))
    exact = [record for record in records if record.run == name]
    matches = exact or [record for record in records if record.run.startswith(name) or record.run.endswith(f"-{name}")]
    if len(matches) == 1 or (matches and all(record.run.endswith(f"-{name}") for record in matches)):
        return matches[-1]
    if matches:
        names = ", ".join(one.run for one in matches[:5])
        raise NotInRecord(f"{len(matches)} runs begin with {name!r}: {names}", "write more of the name")
    from difflib import get_close_matches

    close = get_close_matches(name, [record.run for record in records], n=1)
    raise NotInRecord(f"there is no run {name!r} in {runs}", f"did you mean {close[0]}?" if close else "see `lab runs`")
