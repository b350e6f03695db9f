"""This machine's capacity for local nodes, and its checks of `lab doctor`."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from lab import DISTRIBUTION
from lab.engine.doctor import Check, Wanted, free_memory_bytes, gpu_checks
from lab.node.messages.agent import OLDEST_TORCH, is_older
from lab.node.recorder import build
from lab.plan.limits import Capacity, NodeCost

COST = NodeCost(node_bytes=6_000_000, shared_bytes=300_000_000)
"""An estimate from measurements, see `docs/many-nodes.md`: the pages that an idle agent has changed, with the kernel's
tables for it; and the pages that all agents share."""
_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def read_capacity(proc: Path = _PROC, cgroups: Path | None = _CGROUPS) -> Capacity:
    """Return the remaining memory, processes, and descriptors, by the narrowest limits of this process.

    Args:
        proc: the folder of the proc file system.
        cgroups: the folder of control groups; None: for processes that are in other groups.
    """
    memory = [free_memory_bytes(proc), *_left_in_cgroups(proc, cgroups, "memory", "memory.limit_in_bytes")]
    return Capacity(
        memory_bytes=_least(memory),
        threads=_least([*_threads_left(proc), *_left_in_cgroups(proc, cgroups, "pids", "pids.max")]),
        open_files=_limit(resource.RLIMIT_NOFILE),
    )


def _least(numbers: list[int | None]) -> int | None:
    return min((max(0, number) for number in numbers if number is not None), default=None)


def _limit(which: int) -> int | None:
    hard = resource.getrlimit(which)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def _read(path: Path) -> str:
    """Return the text of a file; empty if it does not exist, or its process has ended."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    """Return the number in a file; None if there is no such file, or no limit in it."""
    text = _read(path).strip()
    return int(text) if text.isdigit() else None


def _table(path: Path) -> dict[str, int]:
    """Parse lines of a word and a number."""
    lines = [line.replace(":", " ").split() for line in _read(path).splitlines()]
    return {line[0]: int(line[1]) for line in lines if len(line) > 1 and line[1].isdigit()}


def _threads_left(proc: Path) -> Iterator[int | None]:
    """Yield the threads that the kernel still allows, and those of `ulimit -u`, which does not bind root."""
    load = _read(proc / "loadavg").split()
    if len(load) < 4:
        return
    for limit in (_number(proc / "sys/kernel" / name) for name in ("pid_max", "threads-max")):
        yield None if limit is None else limit - int(load[3].partition("/")[2])
    of_user = _limit(resource.RLIMIT_NPROC)
    if os.geteuid() != 0 and of_user is not None:
        processes = (_table(path / "status") for path in proc.glob("[0-9]*"))
        yield of_user - sum(one.get("Threads", 0) for one in processes if one.get("Uid") == os.getuid())


def _left_in_cgroups(proc: Path, cgroups: Path | None, controller: str, limit: str) -> Iterator[int | None]:
    """Yield what the cgroup of this process, and those above it, have left; `limit` is the file of version 1."""
    lines = [line.split(":", 2) for line in _read(proc / "self/cgroup").splitlines()] if cgroups else []
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if controllers and controller not in controllers.split(","):
            continue
        top = Path(cgroups or "") / controllers
        for folder in (top / path.lstrip("/"), *(top / path.lstrip("/")).parents):
            if not folder.is_relative_to(top):
                break
            yield _left(folder, controller, limit if controllers else f"{controller}.max")


def _left(folder: Path, controller: str, limit: str) -> int | None:
    """Return what one cgroup has left; file pages in memory can be reclaimed."""
    most = _number(folder / limit)
    used = _number(folder / f"{controller}.current") or _number(folder / f"{controller}.usage_in_bytes") or 0
    cached = _table(folder / "memory.stat") if controller == "memory" else {}
    return None if most is None else most - used + (cached.get("total_cache") or cached.get("file") or 0)


_FILES_PER_WORKER = 16


def examine_local_engine(home: Path, wanted: Wanted) -> list[Check]:
    """Check whether local nodes can start: torch, loopback addresses, a short path, open files."""
    return [*_torch(), _home(home), _files(wanted), *gpu_checks(wanted)]


def _torch() -> list[Check]:
    if (spec := importlib.util.find_spec("torch")) is None or spec.origin is None:
        return [Check("failed", "torch", "not installed", f"pip install '{DISTRIBUTION}[local]'")]
    # The metadata of some builds lack the end, as in 2.15.0+cu132.
    match = re.search(r"^__version__ = '([^']+)'", _read(Path(spec.origin).with_name("version.py")), re.MULTILINE)
    version = match[1] if match else importlib.metadata.version("torch")
    fix, result = f"pip install 'torch>={OLDEST_TORCH}'", f"local, with torch {version}"
    engine = Check.judge("engine", result, is_older(version, OLDEST_TORCH), fix, "failed")
    return [engine, _recorder(version, Path(spec.origin).parent)]


def _recorder(torch: str, folder: Path) -> Check:
    if Path(build.cache_folder(), build.file_name(torch)).is_file():
        return Check("ok", "recorder", f"compiled, in {build.cache_folder()}")
    result = build.explain_unfit(torch, str(folder))
    result = result or f"`{Path(sys.executable).name} -m {build.__name__}` builds a faster one"
    return Check("ok", "recorder", f"in Python; {result}")


def _home(home: Path) -> Check:
    if len(os.fsencode(home)) + len("/") + 40 + len("/node9999/run/n4194304") > 107:
        return Check("failed", "folder", f"{home} is too long for Unix sockets", "set LAB_LOCAL_HOME to a short path")
    return Check("ok", "folder", str(home))


def _files(wanted: Wanted) -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 64 + wanted.nodes * wanted.nproc_per_node * _FILES_PER_WORKER
    result = f"{soft} open files allowed, about {needed} needed"
    return Check.judge("open files", result, soft < needed, f"ulimit -n {needed}")
