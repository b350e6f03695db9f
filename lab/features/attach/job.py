"""Find the ranks of a running job in /proc, sample their stacks twice, and describe who moves and who waits."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from lab import DISTRIBUTION
from lab.diagnosis.causes import find_causes
from lab.diagnosis.ends import COMPUTES_FROM, find_waits, longest_wait_s, stood_of
from lab.diagnosis.evidence import Evidence, read_evidence
from lab.diagnosis.facts import RunFacts
from lab.diagnosis.finding import ELSEWHERE, Finding
from lab.diagnosis.stacks import clip_stack, name_own_files, shorten_stack
from lab.diagnosis.wording import render_stood
from lab.errors import LabError, UsageError
from lab.features.dumps.dump import Dumps
from lab.features.dumps.record import import_dumps
from lab.features.recording.verb import name_of
from lab.features.recording.world import read_text
from lab.node.messages.agent import Stack, Started
from lab.node.processes import list_descendants, parent_of, read_stat, read_words
from lab.node.statement import SOCKET_VARIABLE
from lab.polling import map_parallel
from lab.record.layout import EVENTS
from lab.record.read import Record
from lab.report.style import Style
from lab.words import capitalize_first, format_count, format_duration, group_pairs, join_words, name_ranks

_NUMBERS = {"RANK": "WORLD_SIZE", "OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE", "PMI_RANK": "PMI_SIZE"}
"""Variables with the rank and the world size that launchers set."""
_MEETING = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
_NUMBER = re.compile(r"[0-9]{1,6}")
"""A rank, a world size, or a port: a process can claim any number."""
_LOOPBACK = re.compile(r"localhost$|127\.|::1$")
_THREADS = re.compile(r"pt_(gloo|nccl|mpi|ucc|xccl)|gloo_")
"""Names of threads that process groups start; forks do not inherit threads."""


class Unable(LabError):
    """This machine or this user lacks what `lab attach` needs."""

    exit_code = 3


class Rank(NamedTuple):
    """A process that is a rank."""

    pid: int
    parent: int
    started: int
    """In ticks since the machine started."""
    number: int | None
    """None: its environment does not tell."""
    size: int
    """Number of ranks in its world; 0: unknown."""
    world: tuple[str, ...]
    """The same for all ranks of its world."""
    is_joined: bool
    environment: Mapping[str, str]
    children: tuple[int, ...] = ()
    """Processes that it started."""


def read_command(pid: int) -> list[str]:
    """Return the words of a process's command; an empty word if it has ended or has none."""
    return read_text(f"/proc/{pid}/cmdline").rstrip("\0").split("\0")


def find_worlds(pid: int) -> list[list[Rank]]:
    """Return the ranks of each world that a process belongs to, as a rank, launcher, or child of a rank.

    Raises:
        UsageError: there is no such process.
        Unable: it belongs to another user.
    """
    parents = {one: parent_of(one) for one in map(int, filter(str.isdecimal, os.listdir("/proc")))}
    if pid not in parents:
        raise UsageError(f"there is no process {pid}", "`ps -ef` lists processes; name a rank or its launcher")
    if os.geteuid() not in (0, os.stat(f"/proc/{pid}").st_uid):
        raise Unable(f"process {pid} belongs to another user", f"sudo env PATH=$PATH lab attach {pid}")
    related = {pid, *_ancestors(pid, parents), *list_descendants(pid)}
    ranks = sorted(_find_ranks(parents), key=lambda one: (one.number or 0, one.started))
    worlds = group_pairs((rank.world, rank) for rank in ranks).values()
    return [world for world in worlds if related.intersection(one.pid for one in world)]


def _ancestors(pid: int, parents: Mapping[int, int]) -> Iterator[int]:
    while pid := parents.get(pid, 0):
        yield pid


def _find_ranks(parents: Mapping[int, int]) -> list[Rank]:
    """Return all ranks on this machine that this user may read, each once."""
    known = {pid: rank for pid in parents if (rank := _read_rank(pid)) is not None}
    launchers = {one.parent for one in known.values()}
    best: dict[tuple[object, ...], Rank] = {}
    for pid, rank in sorted(known.items(), key=lambda item: (not item[1].is_joined, item[1].started)):
        above = [known[one] for one in _ancestors(pid, parents) if one in known]
        if rank.number is None and not rank.is_joined and (pid in launchers or not above):
            continue  # a program with torch that started no rank, or the parent of ranks
        if any(one.is_joined and (rank.number is None or one.world == rank.world) for one in above):
            continue  # a child of a rank, such as a DataLoader worker
        children = tuple(one for one, parent in parents.items() if parent == pid)
        best.setdefault((rank.world, pid if rank.number is None else rank.number), rank._replace(children=children))
    return list(best.values())


def _read_rank(pid: int) -> Rank | None:
    """Return a process as a rank if it may be one: a Python with torch, or with a rank in its environment."""
    folder, words = f"/proc/{pid}", read_stat(pid)
    try:
        if not os.path.basename(os.readlink(f"{folder}/exe")).startswith("python"):
            return None
        threads = [read_text(f"{task}/comm") for task in Path(folder, "task").iterdir()]
        network = os.readlink(f"{folder}/ns/net")
    except OSError:  # it has ended, or belongs to another user
        return None
    variables = dict(pair.split("=", 1) for pair in read_text(f"{folder}/environ").split("\0") if "=" in pair)
    known = {name: int(text) for name, text in variables.items() if _NUMBER.fullmatch(text)}
    pairs = (pair for pair in _NUMBERS.items() if known.keys() >= {*pair})
    number, size = next(((known[one], known[of]) for one, of in pairs), (None, 0))
    if not words or (number is None and "/libtorch_cpu." not in read_text(f"{folder}/maps")):
        return None
    meeting = [variables.get(name, "") for name in _MEETING]
    here = network if _LOOPBACK.match(meeting[0]) else ""  # such an address is another one in each container
    world = (*meeting, here) if number is not None and meeting[0] else (words[1].decode(),)
    is_joined = any(map(_THREADS.match, threads))
    return Rank(pid, int(words[1]), int(words[19]), number, size, world, is_joined, variables)


_ATTEMPTS = 3
"""A Python that runs may change a stack while it is read."""
_ENDED = "no longer running"
_DENIED = re.compile("permission denied|not permitted", re.IGNORECASE)
_SPAWN, _SERVER = "torch/multiprocessing/spawn.py", "torch/distributed/debug/_frontend.py"
_LIBRARIES = ("-packages/", "/lib/python", "<frozen", "/labnode/")


class Sample(NamedTuple):
    """A process at one moment."""

    stack: str = ""
    """Stacks of all threads, as faulthandler writes them."""
    trail: str = ""
    """Everything that py-spy knows of the main thread; it changes if the thread moves on."""
    values: Mapping[str, int] = {}
    """`rank` and `world_size` as local variables have them, and the `port` of a debug server."""
    cpu_s: float = 0.0
    """CPU time of the main thread, to the nanosecond: a thread that is blocked all the time uses none."""
    error: str = ""
    """Why there is no stack."""


def find_program() -> str:
    """Return the path of py-spy.

    Raises:
        Unable: it is not installed.
    """
    path = shutil.which("py-spy", path=os.path.dirname(sys.executable)) or shutil.which("py-spy")
    if path is None:
        raise Unable("`lab attach` needs py-spy, which is not installed", f"pip install '{DISTRIBUTION}[attach]'")
    return path


def read_samples(program: str, pids: Sequence[int], timeout_s: float) -> dict[int, Sample]:
    """Return a sample of each process, by pid."""
    return dict(zip(pids, map_parallel(lambda pid: _read(program, pid, timeout_s), pids), strict=True))


def _read(program: str, pid: int, timeout_s: float) -> Sample:
    words = [program, "dump", "--nonblocking", "--json", "--full-filenames", "--locals", "--pid", str(pid)]
    error = ""
    for _ in range(_ATTEMPTS):
        try:
            ended = subprocess.run(words, capture_output=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired:
            return Sample(error="py-spy did not answer in time")
        if not ended.returncode:
            return _sample(pid, json.loads(ended.stdout))
        error = ended.stderr.decode(errors="replace").partition("Stack backtrace")[0]
    return Sample(error=" ".join(error.split()) if read_stat(pid) else _ENDED)


def _sample(pid: int, threads: list[Any]) -> Sample:
    main = next((one for one in threads if one["thread_name"] == "MainThread"), threads[0])
    text = "\n".join(map(_thread_text, sorted(threads, key=lambda one: one is main)))
    used_ns = int(next(read_words(f"/proc/{pid}/schedstat"), ["0"])[0])
    return Sample(text, json.dumps(main["frames"]), _values(main["frames"]), used_ns / 1e9)


def _thread_text(thread: Any) -> str:
    """Return a stack as faulthandler writes it, with the innermost frame first."""
    lines = [f"Thread 0x{thread['thread_id']:016x} (most recent call first):"]
    for frame in thread["frames"]:
        file, function = frame["filename"].replace("\n", " "), frame["name"].rpartition(".")[2]
        lines.append(f'  File "{file}", line {frame["line"]} in {function}')
    return "\n".join(lines)


def _values(frames: list[Any]) -> dict[str, int]:
    """Return numbers that locals of known names have; a frame further out counts less."""
    values: dict[str, int] = {}
    for frame in reversed(frames):
        held = {one["name"]: int(one["repr"]) for one in frame["locals"] or () if _NUMBER.fullmatch(one["repr"] or "")}
        file, name = frame["filename"], frame["name"]
        if file.endswith(_SPAWN) and "i" in held:
            values["rank"] = held["i"]
        elif file.endswith(_SERVER) and "port" in held:
            values["port"] = held["port"]
        elif name == "init_process_group" or not any(one in file for one in _LIBRARIES):
            values |= {key: held[key] for key in ("rank", "world_size") if key in held}
    return values


_JOB = re.compile(r'torch/distributed/|torch/multiprocessing/spawn\.py"')
"""A process that has not joined and has no such file on its stack is no rank."""
_OUTER = tuple(f'  File "{one}' for one in ELSEWHERE)
_MOST_CHILDREN, _MOST_POSITIONS, _STACK_LINES = 4, 3, 12
"""Limits: processes of a rank whose stacks are read, positions in the sentence, and lines of a stack."""
_PERMISSION = "run it as root, in a container with SYS_PTRACE, or with /proc/sys/kernel/yama/ptrace_scope at 0"

_SOCKET = re.compile(r"/proc/\d+/fd(?=/\d+$)")
"""Where `lab record` has its socket, and its open files."""
_MOST_BYTES, _PIECE_BYTES = 64 << 20, 1 << 20
_Samples = Mapping[int, Sample]
"""By pid."""


class RankState(NamedTuple):
    """What a rank does."""

    pid: int
    rank: int | None
    """None if unknown."""
    where: str
    """What it does, after `rank 1 is`: `in all_reduce at train.py:9`."""
    call: str = ""
    """The function of torch.distributed that it is in, unless a signal stopped it; empty: none."""
    at: str = ""
    """The line of the script."""
    moved: bool | None = None
    """Whether its stack or its variables changed between two samples; None if unknown, because its thread ran."""
    stack: str = ""

    @property
    def waits(self) -> bool:
        """Whether it stayed in a call."""
        return bool(self.call) and self.moved is False


class WorldState(NamedTuple):
    """What the ranks of a world do."""

    data: dict[str, Any]
    """Everything, as plain data."""
    ranks: list[RankState]

    def text(self, style: Style) -> str:
        """Format the sentence, a stack for each position, and where calls are known from."""
        of = f"process {self.data['launcher']}, {format_count(len(self.ranks), 'rank')}"
        lines = [f"{style.paint(self.data['name'], 'bold')} ({of})", f"  {self.data['sentence']}", ""]
        for group in _positions(self.ranks):
            lines.append(f"{_who(group)}: {group[0].where}")
            lines += [style.paint(line, "dim") for line in group[0].stack.splitlines()]
        return "\n".join([*lines, "", f"calls: {self.data['calls']}"])


def inspect_world(ranks: list[Rank], program: str, interval_s: float, timeout_s: float) -> WorldState | None:
    """Return what the ranks of a world do; None if its processes turn out to be no ranks.

    Args:
        ranks: all of the world on this machine.
        program: py-spy.
        interval_s: seconds between two samples; 0: one sample is enough.
        timeout_s: for reading one process.

    Raises:
        Unable: this user may not read any of them.
        UsageError: they belong to a cluster of the lab, whose records show more.
    """
    pids, began = [rank.pid for rank in ranks], time.monotonic()
    children = [pid for rank in ranks for pid in rank.children[:_MOST_CHILDREN]]
    first = last = read_samples(program, [*pids, *children], timeout_s)
    if all(_DENIED.search(first[pid].error) for pid in pids):
        raise Unable(f"the system does not let this user read {_name_processes(pids)}", _PERMISSION)
    has_joined = any(rank.number is not None or rank.is_joined for rank in ranks)
    if not has_joined and not any(_JOB.search(first[pid].stack) for pid in pids):
        return None
    if any("/labnode/node/rank/worker.py" in first[pid].stack for pid in pids):
        raise UsageError("the lab runs this job on a cluster and records it", "use `lab watch` or `lab explain`")
    record = _find_record(ranks)
    port = next((port for pid in children if (port := first[pid].values.get("port"))), 0)
    if interval_s:
        time.sleep(max(0.0, began + interval_s - time.monotonic()))
        last = read_samples(program, pids, timeout_s)
    values = {pid: {**first[pid].values, **last[pid].values} for pid in pids}
    numbers = _number(ranks, values) | (_ranks_of(record) if record is not None else {})
    with TemporaryDirectory(prefix="lab-attach-") as folder:
        calls = read_evidence(record) if record is not None else _read_dumps(port, timeout_s, Path(folder))
        working = Path(f"/proc/{pids[0]}/cwd").resolve()
        evidence = calls or Evidence(facts=RunFacts(ranks=[]), record=Record(path=working))
        states = [_inspect_rank(rank, numbers[rank.pid], evidence, first, last, interval_s) for rank in ranks]
        still = {one.rank for one in states if one.moved is False or (record is None and one.moved is None)}
        finding = _find_cause(evidence, still, interval_s) if calls and interval_s else None
    parents = [rank.parent for rank in ranks]
    launcher = max(parents, key=parents.count) if len(ranks) > 1 else pids[0]
    size = max(rank.size or values[rank.pid].get("world_size", 0) for rank in ranks)
    how = "from PyTorch's flight recorder" if calls else "unknown; `lab record` starts a job so that they are known"
    if record is not None:
        how = f"from its record: `lab watch {record.path}`, `lab explain {record.path}`"
    data = {
        "name": name_of(read_command(launcher)),
        "launcher": launcher,
        "sentence": _sentence(states, finding, size, interval_s),
        "ranks": [one._asdict() for one in states],
        "world_size": size or None,
        "calls": how,
        "finding": finding.to_json() if finding is not None else None,
    }
    return WorldState(data, states)


def _number(ranks: Sequence[Rank], values: Mapping[int, Mapping[str, int]]) -> dict[int, int | None]:
    """Return the rank of each process: of its environment, or else of its variables if these differ from each other."""
    held = [values[rank.pid].get("rank") for rank in ranks]
    is_usable = any(rank.number is None for rank in ranks) and None not in held and len({*held}) == len(held)
    return {rank.pid: number if is_usable else rank.number for rank, number in zip(ranks, held, strict=True)}


def _inspect_rank(
    rank: Rank, number: int | None, evidence: Evidence, first: _Samples, last: _Samples, interval_s: float
) -> RankState:
    """Add a stack to the evidence; a process whose rank is unknown has its pid instead."""
    pid, before, now = rank.pid, first[rank.pid], last[rank.pid]
    if error := before.error or now.error:
        return RankState(pid, number, error if error == _ENDED else f"at an unknown line ({error})")
    children = [f"Process {one}, started by this worker:\n{first[one].stack}" for one in rank.children if one in first]
    folder = os.path.realpath(f"/proc/{pid}/cwd")
    text, name = name_own_files("\n".join([now.stack, *children]), folder), pid if number is None else number
    evidence.facts.add(Stack(name, time.time(), text=text))
    facts = evidence.facts.rank(name)
    location, is_stopped = evidence.stack_location(facts), read_stat(pid)[:1] in ([b"T"], [b"t"])
    lines = clip_stack(shorten_stack(text), _STACK_LINES)
    while len(lines) > 1 and lines[-1].startswith(_OUTER):
        lines.pop()
    used_s, where = now.cpu_s - before.cpu_s, render_stood(stood_of(evidence, facts))
    uses_cpu = used_s > COMPUTES_FROM * interval_s > 0
    where = f"{'stopped by a signal, ' * is_stopped}{where}{', using a CPU' * uses_cpu}"
    moved = True if before.trail != now.trail else False if interval_s and not used_s else None
    call, at = (location.call, location.at) if location is not None else ("", "")
    return RankState(pid, number, where, "" if is_stopped else call, at, moved, "\n".join(lines))


def _find_cause(evidence: Evidence, still: set[int | None], interval_s: float) -> Finding | None:
    """Return what the calls show; None if they show nothing, or if a rank may wait only for a moment.

    A record can be behind, so that a call in it has ended; dumps are not.
    """
    waits = find_waits(evidence)
    is_short = any(longest_wait_s(evidence, [one]) < interval_s for one in waits.values())
    if is_short or not waits or not still.issuperset(waits):
        return None
    causes = (one for one in find_causes(evidence) if "ends" in one.kind.properties)
    return next((one for one in causes if one.step), None)


# -- calls that something has recorded


def _find_record(ranks: list[Rank]) -> Record | None:
    """Return the record that `lab record` writes of these ranks; None if there is none."""
    pids = {rank.pid for rank in ranks}
    for folder in {one[0] for rank in ranks if (one := _SOCKET.match(rank.environment.get(SOCKET_VARIABLE, "")))}:
        with suppress(OSError):
            for path in [Path(os.path.realpath(one)) for one in Path(folder).iterdir()]:  # others may have been closed
                if path.name == EVENTS and pids & _ranks_of(record := Record(path=path.parent)).keys():
                    return record
    return None


def _ranks_of(record: Record) -> dict[int, int]:
    """Return the ranks of a record by their process ids."""
    return {event.pid: event.rank for event in record.events() if isinstance(event, Started)}


def _read_dumps(port: int, timeout_s: float, folder: Path) -> Evidence | None:
    """Return the calls in flight recorder dumps of a debug server; None if it returns none.

    Args:
        port: of the server; 0: there is none.
        timeout_s: for its answer.
        folder: for the dumps and their record.
    """
    end, answer = time.monotonic() + timeout_s, bytearray()
    with suppress(OSError, ValueError, LabError), socket.create_connection(("localhost", port), timeout_s) as server:
        server.sendall(b"GET /fr_trace_json HTTP/1.0\r\n\r\n")  # its answer has no parts, and ends the connection
        while (piece := server.recv(_PIECE_BYTES)) and len(answer) < _MOST_BYTES and time.monotonic() < end:
            answer += piece
        (folder / "page").write_bytes(answer.partition(b"\r\n\r\n")[2])
        return read_evidence(import_dumps(Dumps(folder / "page"), "job", folder / "runs"))
    return None


# -- words


def _name_processes(pids: Sequence[int]) -> str:
    return f"process{'es' if len(pids) > 1 else ''} {join_words(map(str, pids))}"


def _who(states: Sequence[RankState]) -> str:
    """Name ranks, or processes whose ranks are unknown."""
    ranks = [one.rank for one in states if one.rank is not None]
    return name_ranks(ranks) if len(ranks) == len(states) else _name_processes([one.pid for one in states])


def _positions(states: Sequence[RankState]) -> list[list[RankState]]:
    """Group ranks that do the same; ranks in calls come first."""
    groups = group_pairs(((one.where, one.waits), one) for one in states)
    return sorted(groups.values(), key=lambda group: (not group[0].call, -len(group)))


def _sentence(states: Sequence[RankState], finding: Finding | None, size: int, interval_s: float) -> str:
    """Return what the ranks do and whether they move on; with stacks alone, nobody is to blame."""
    groups, known, clauses = _positions(states), {one.rank for one in states}, list[str]()
    for group in groups[:_MOST_POSITIONS]:
        verb = (("waits", "wait") if group[0].waits else ("is", "are"))[len(group) > 1]
        clauses.append(f"{_who(group)} {verb} {group[0].where}")
    if left := sum(map(len, groups[_MOST_POSITIONS:])):
        clauses.append(f"{format_count(left, 'other rank')} elsewhere")
    parts = [f"{'; '.join(clauses)}." if finding is None else finding.sentence]
    if None not in known and (absent := [rank for rank in range(size) if rank not in known]):
        parts.append(f"no process on this machine: {name_ranks(absent)}.")
    moved, within = [one for one in states if one.moved], f"within {format_duration(interval_s)}"
    some = f"only the stack of {_who(moved)}" if moved else "no stack"
    changed = "every stack" if len(moved) == len(states) else some
    parts.append(f"{within}, {changed} changed." if interval_s else "one sample cannot show whether they move on.")
    return " ".join(map(capitalize_first, parts))
