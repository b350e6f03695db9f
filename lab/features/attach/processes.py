"""Find the ranks of a running job in /proc, from any of its processes, and read their stacks with py-spy."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from lab import DISTRIBUTION
from lab.errors import LabError, UsageError
from lab.grouping import group_pairs
from lab.node.processes import read_stat

_NUMBERS = {"RANK": "WORLD_SIZE", "OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE", "PMI_RANK": "PMI_SIZE"}
"""Variables with the rank and the world size that launchers set."""
_MEETING = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
_LOOPBACK = re.compile(r"localhost$|127\.|::1$")
_THREADS = re.compile(r"pt_(gloo|nccl|mpi|ucc|xccl)|gloo_")
"""Names of threads that process groups start; forks do not inherit threads."""


class Unable(LabError):
    """This machine or this user lacks what `lab attach` needs."""

    exit_code = 3


class Process(NamedTuple):
    """A process."""

    pid: int
    parent: int
    state: str
    """The kernel's letter; `T`: stopped by a signal."""
    started: int
    """When it started, in ticks since the machine started."""


class Rank(NamedTuple):
    """A process that is a rank."""

    process: Process
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

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid


def read_process(pid: int) -> Process | None:
    """Return a process; None if it has ended."""
    words = read_stat(pid)
    return Process(pid, int(words[1]), words[0].decode(), int(words[19])) if words else None


def read_command(pid: int) -> list[str]:
    """Return the words of a process's command; an empty word if it has ended or has none."""
    with suppress(OSError):
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).rstrip("\0").split("\0")
    return [""]


def find_worlds(pid: int) -> list[list[Rank]]:
    """Return the ranks of each world that a process belongs to, as a rank, launcher, or child of a rank.

    Raises:
        UsageError: there is no such process.
        Unable: it belongs to another user.
    """
    table = {one.pid: one for name in os.listdir("/proc") if name.isdecimal() and (one := read_process(int(name)))}
    if pid not in table:
        raise UsageError(f"there is no process {pid}", "`ps -ef` lists processes; name a rank or its launcher")
    if os.geteuid() not in (0, os.stat(f"/proc/{pid}").st_uid):
        raise Unable(f"process {pid} belongs to another user", f"sudo env PATH=$PATH lab attach {pid}")
    related = {pid, *_ancestors(pid, table), *(one for one in table if pid in _ancestors(one, table))}
    ranks = sorted(_find_ranks(table), key=lambda one: (one.number or 0, one.process.started))
    worlds = group_pairs((rank.world, rank) for rank in ranks).values()
    return [world for world in worlds if related.intersection(one.pid for one in world)]


def _ancestors(pid: int, table: Mapping[int, Process]) -> Iterator[int]:
    while (process := table.get(pid)) is not None and process.parent:
        yield (pid := process.parent)


def _find_ranks(table: Mapping[int, Process]) -> list[Rank]:
    """Return all ranks on this machine that this user may read, each once."""
    known = {pid: rank for pid, process in table.items() if (rank := _read_rank(process)) is not None}
    parents = {one.process.parent for one in known.values()}
    best: dict[tuple[object, ...], Rank] = {}
    for pid, rank in sorted(known.items(), key=lambda item: (not item[1].is_joined, item[1].process.started)):
        above = [known[one] for one in _ancestors(pid, table) if one in known]
        if rank.number is None and not rank.is_joined and (pid in parents or not above):
            continue  # a program with torch that started no rank, or the parent of ranks
        if any(one.is_joined and (rank.number is None or one.world == rank.world) for one in above):
            continue  # a child of a rank, such as a DataLoader worker
        children = tuple(one.pid for one in table.values() if one.parent == pid)
        best.setdefault((rank.world, pid if rank.number is None else rank.number), rank._replace(children=children))
    return list(best.values())


def _read_rank(process: Process) -> Rank | None:
    """Return a process as a rank if it may be one: a Python with torch, or with a rank in its environment."""
    folder = f"/proc/{process.pid}"
    try:
        if not os.path.basename(os.readlink(f"{folder}/exe")).startswith("python"):
            return None
        pairs = os.fsdecode(Path(folder, "environ").read_bytes()).split("\0")
        variables = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        names = next((pair for pair in _NUMBERS.items() if all(variables.get(one, "").isdecimal() for one in pair)), ())
        if not names and b"/libtorch_cpu." not in Path(folder, "maps").read_bytes():
            return None
        threads = [Path(task, "comm").read_text() for task in Path(folder, "task").iterdir()]
        network = os.readlink(f"{folder}/ns/net")
    except OSError:  # it has ended, or belongs to another user
        return None
    number, size = (int(variables[one]) for one in names) if names else (None, 0)
    meeting = [variables.get(name, "") for name in _MEETING]
    here = network if _LOOPBACK.match(meeting[0]) else ""  # such an address is another one in each container
    world = (*meeting, here) if names and meeting[0] else (str(process.parent),)
    return Rank(process, number, size or 0, world, any(map(_THREADS.match, threads)), variables)


_AT_ONCE = 8
_ATTEMPTS = 3
"""A Python that runs may change a stack while it is read."""
_DENIED = ("permission denied", "not permitted")
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
    state: str = ""
    """The kernel's letter; `T`: stopped by a signal."""
    cpu_s: float = 0.0
    """CPU time of the main thread, to the nanosecond: a thread that is blocked all the time uses none."""
    error: str = ""
    """Why there is no stack."""


def find_program() -> str:
    """Return the path of py-spy.

    Raises:
        Unable: it is not installed.
    """
    here = Path(sys.executable).with_name("py-spy")
    path = str(here) if here.exists() else shutil.which("py-spy")
    if path is None:
        raise Unable("`lab attach` needs py-spy, which is not installed", f"pip install '{DISTRIBUTION}[attach]'")
    return path


def read_samples(program: str, pids: Iterable[int], timeout_s: float) -> dict[int, Sample]:
    """Return a sample of each process, by pid."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return {
            pid: waiting.result()
            for pid, waiting in [(pid, pool.submit(_read, program, pid, timeout_s)) for pid in pids]
        }


def is_denied(sample: Sample) -> bool:
    """Return whether this user may not read the process."""
    return any(one in sample.error.lower() for one in _DENIED)


def _read(program: str, pid: int, timeout_s: float) -> Sample:
    words = [program, "dump", "--nonblocking", "--json", "--full-filenames", "--locals", "--pid", str(pid)]
    ended = None
    for _ in range(_ATTEMPTS):
        try:
            ended = subprocess.run(words, capture_output=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired:
            return Sample(error="py-spy did not answer in time")
        if not ended.returncode:
            return _sample(pid, json.loads(ended.stdout))
    error = ended.stderr.decode(errors="replace").partition("Stack backtrace")[0] if ended is not None else ""
    return Sample(error=" ".join(error.split()) if read_process(pid) is not None else "it has ended")


def _sample(pid: int, threads: list[Any]) -> Sample:
    main = next((one for one in threads if one["thread_name"] == "MainThread"), threads[0])
    text = "\n".join(map(_thread_text, sorted(threads, key=lambda one: one is main)))
    process, cpu_s = read_process(pid), 0.0
    with suppress(OSError):
        cpu_s = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    state = process.state if process is not None else ""
    return Sample(text, json.dumps(main["frames"]), _values(main["frames"]), state, cpu_s)


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
        held = {one["name"]: int(one["repr"]) for one in frame["locals"] or () if (one["repr"] or "").isdecimal()}
        file, name = frame["filename"], frame["name"]
        if file.endswith(_SPAWN) and "i" in held:
            values["rank"] = held["i"]
        elif file.endswith(_SERVER) and "port" in held:
            values["port"] = held["port"]
        elif name == "init_process_group" or not any(one in file for one in _LIBRARIES):
            values |= {key: held[key] for key in ("rank", "world_size") if key in held}
    return values
