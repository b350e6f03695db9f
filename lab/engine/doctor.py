"""What `lab doctor` asks and says, and what it says of the machine itself: Python, memory, cores, disk."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lab import DISTRIBUTION
from lab.errors import MachineLacks
from lab.feature import hook
from lab.frozen import Frozen
from lab.words import format_bytes, plural

AGENT_BYTES = 150 * 1024**2
"""What an idle agent with torch imported holds."""
WORKER_BYTES = 120 * 1024**2
"""What a small script adds for each worker."""
_MIN_DISK_BYTES = 1 << 30


@dataclass(frozen=True)
class Check:
    """One line of `lab doctor`."""

    level: Literal["ok", "warning", "failed"]
    what: str
    """The thing that was looked at."""
    found: str
    fix: str = ""
    """What to do; empty where nothing needs doing."""

    @classmethod
    def judge(
        cls, what: str, found: str, bad: object, fix: str, level: Literal["warning", "failed"] = "warning"
    ) -> Check:
        """One that is of this level where something is bad, and fine where it is not."""
        return cls(level, what, found, fix) if bad else cls("ok", what, found)


class Wanted(Frozen):
    """The size that `lab doctor` is asked to judge."""

    nodes: int = 3
    nproc_per_node: int = 1
    image: str | None = None
    gpus: int = 0
    gpu_test: bool = False
    """Whether the GPUs that are there are tried."""


def examine_machine(wanted: Wanted) -> list[Check]:
    """Python, memory, cores and disk for the size that is wanted."""
    free, folder = shutil.disk_usage(Path.cwd()).free, Path.cwd()
    disk = f"{format_bytes(free)} free for records in {folder}"
    return [
        Check("ok", "python", f"{sys.version.split()[0]} ({sys.executable})"),
        *namesakes(),
        memory_check(free_memory_bytes(), wanted),
        cores_check(os.cpu_count() or 1, wanted),
        Check.judge("disk", disk, free < _MIN_DISK_BYTES, "free some space, or use --runs"),
    ]


def namesakes() -> list[Check]:
    """Other distributions with a package `lab`, which pip puts into the same folder without a word."""
    import importlib.metadata

    found = []
    for other in importlib.metadata.distributions():
        files = f"\n{other.read_text('RECORD') or ''}"
        if "\nlab/__init__.py," in files and other.metadata["Name"] != DISTRIBUTION:
            name = other.metadata["Name"]
            again = f"pip install --force-reinstall {DISTRIBUTION}"
            fix = f"pip uninstall {name}; {again}; best in an environment of its own"
            what = f"the distribution {name} {other.version} has a package `lab` too: where files have the same name, "
            found.append(Check("failed", "package", f"{what}those that were installed last have won", fix))
    return found


def memory_check(available_bytes: int | None, wanted: Wanted) -> Check:
    """Whether memory suffices for the nodes and workers that are wanted."""
    needed = wanted.nodes * (AGENT_BYTES + wanted.nproc_per_node * WORKER_BYTES)
    if available_bytes is None:
        return Check("warning", "memory", "the system does not say how much is free")
    size = f"{wanted.nodes} nodes x {wanted.nproc_per_node} workers"
    found = f"{format_bytes(available_bytes)} available, about {format_bytes(needed)} needed for {size}"
    return Check.judge("memory", found, available_bytes < needed, "use fewer nodes, or close something", "failed")


def cores_check(cores: int, wanted: Wanted) -> Check:
    """Whether there are cores enough for the workers to make sense."""
    workers = wanted.nodes * wanted.nproc_per_node
    fix = "workers will wait for a core; use fewer for timings"
    return Check.judge("cores", f"{cores} for {workers} workers", workers > 8 * cores, fix)


def free_memory_bytes(proc: Path = Path("/proc")) -> int | None:
    """What this machine has available; None where it does not say."""
    with suppress(OSError):
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


_DEVICES = Path("/dev")


def devices_here() -> int | None:
    """How many GPUs this machine has; None where nodes are on another one."""
    if not os.environ.get("DOCKER_HOST", "unix://").startswith("unix://"):
        return None
    return len(list(_DEVICES.glob("nvidia[0-9]*")))


def refusal(wanted: int) -> str:
    """Why so many GPUs a node cannot be had here; empty where they can, or nobody knows."""
    there = devices_here()
    if there is None or wanted <= there:
        return ""
    return f"needs GPU: {plural(wanted, 'GPU')} a node, and this machine has {there or 'none'}"


def refuse_missing(wanted: int) -> None:
    """Refuse what this machine has no GPUs for.

    Raises:
        MachineLacks: it has fewer than a node is to have.
    """
    if why := refusal(wanted):
        raise MachineLacks(why, f"`lab doctor --gpus {wanted}` says what is missing")


def gpu_checks(wanted: Wanted, connection: Any = None, image: str = "") -> list[Check]:
    """What a feature says of GPUs, where that is asked for.

    Args:
        wanted: what is asked for.
        connection: to the Docker engine that makes nodes; None: they are processes of this machine.
        image: what it makes them of.
    """
    gpu = hook("gpu_checks") if wanted.gpus or wanted.gpu_test else None
    checks: list[Check] = gpu(wanted, connection, image) if gpu else []
    return checks
