"""Checks of `lab doctor`, and those of the machine itself: Python, memory, cores, disk."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from lab import DISTRIBUTION
from lab.errors import MachineLacks
from lab.feature import find_hook
from lab.frozen import Frozen
from lab.words import format_bytes, format_count

AGENT_BYTES = 150 * 1024**2
"""Memory of an idle agent with torch imported."""
WORKER_BYTES = 120 * 1024**2
"""Memory that a small script adds for each worker."""
_MIN_DISK_BYTES = 1 << 30


@dataclass(frozen=True)
class Check:
    """One line of `lab doctor`."""

    level: Literal["ok", "warning", "failed"]
    what: str
    """What was checked."""
    result: str
    fix: str = ""
    """What to do; empty if nothing."""

    @classmethod
    def judge(
        cls, what: str, result: str, bad: object, fix: str, level: Literal["warning", "failed"] = "warning"
    ) -> Check:
        """Return a check of this level if `bad` is true, else one that is ok."""
        return cls(level, what, result, fix) if bad else cls("ok", what, result)

    def to_json(self) -> dict[str, str]:
        """Return the check as `lab doctor --json` prints it."""
        return {"level": self.level, "what": self.what, "found": self.result, "fix": self.fix}


class Wanted(Frozen):
    """The size of a run that `lab doctor` judges."""

    nodes: int = 3
    nproc_per_node: int = 1
    image: str | None = None
    gpus: int = 0
    gpu_test: bool = False
    """Whether to test the GPUs."""


def examine_machine(wanted: Wanted) -> list[Check]:
    """Check Python, memory, cores, and disk for the wanted size."""
    free, folder = shutil.disk_usage(Path.cwd()).free, Path.cwd()
    disk = f"{format_bytes(free)} free for records in {folder}"
    return [
        Check("ok", "python", f"{sys.version.split()[0]} ({sys.executable})"),
        *find_namesakes(),
        memory_check(free_memory_bytes(), wanted),
        cores_check(os.cpu_count() or 1, wanted),
        Check.judge("disk", disk, free < _MIN_DISK_BYTES, "free some space, or use --runs"),
    ]


def find_namesakes() -> list[Check]:
    """Return other distributions with a package `lab`, which pip installs into the same folder without a warning."""
    import importlib.metadata

    checks = []
    for other in importlib.metadata.distributions():
        files = f"\n{other.read_text('RECORD') or ''}"
        if "\nlab/__init__.py," in files and other.metadata["Name"] != DISTRIBUTION:
            name = other.metadata["Name"]
            again = f"pip install --force-reinstall {DISTRIBUTION}"
            fix = f"pip uninstall {name}; {again}; best in a new virtual environment"
            what = f"{name} {other.version} has a package `lab` too: it may have overwritten files of {DISTRIBUTION}"
            checks.append(Check("failed", "package", what, fix))
    return checks


def memory_check(available_bytes: int | None, wanted: Wanted) -> Check:
    """Check whether memory suffices for the wanted nodes and workers."""
    needed = wanted.nodes * (AGENT_BYTES + wanted.nproc_per_node * WORKER_BYTES)
    if available_bytes is None:
        return Check("warning", "memory", "the system does not report the available memory")
    size = f"{format_count(wanted.nodes, 'node')} x {format_count(wanted.nproc_per_node, 'worker')}"
    result = f"{format_bytes(available_bytes)} available, about {format_bytes(needed)} needed for {size}"
    return Check.judge("memory", result, available_bytes < needed, "use fewer nodes, or end other programs", "failed")


def cores_check(cores: int, wanted: Wanted) -> Check:
    """Check whether there are enough cores for the workers to make sense."""
    workers = wanted.nodes * wanted.nproc_per_node
    fix = "workers will wait for a core; use fewer for timings"
    return Check.judge("cores", f"{cores} for {format_count(workers, 'worker')}", workers > 8 * cores, fix)


def free_memory_bytes(proc: Path = Path("/proc")) -> int | None:
    """Return the available memory of this machine; None if it does not report it."""
    with suppress(OSError):
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


_DEVICES = Path("/dev")


def devices_here() -> int | None:
    """Return the number of GPUs of this machine; None if nodes are on another one."""
    if not os.environ.get("DOCKER_HOST", "unix://").startswith("unix://"):
        return None
    return len(list(_DEVICES.glob("nvidia[0-9]*")))


def explain_missing_gpus(wanted: int, nodes: int = 1) -> str:
    """Explain why each of these nodes cannot have this many GPUs of its own here; empty if it can, or if unknown."""
    if (there := devices_here()) is None or wanted * nodes <= there:
        return ""
    each = "each node needs" if wanted > there else f"each of {nodes} nodes needs"
    return f"needs GPU: {each} {format_count(wanted, 'GPU')}, but this machine has {there or 'none'}"


def refuse_missing(wanted: int, nodes: int = 1) -> None:
    """Refuse a number of GPUs for each node that this machine does not have.

    Raises:
        MachineLacks: it has fewer than the nodes need.
    """
    if why := explain_missing_gpus(wanted, nodes):
        fewer = "use fewer nodes; " if wanted <= (devices_here() or 0) else ""
        raise MachineLacks(why, f"{fewer}`lab doctor --gpus {wanted}` shows what is missing")


def gpu_checks(wanted: Wanted, connection: Any = None, image: str = "") -> list[Check]:
    """Return the GPU checks of a feature, if GPUs are wanted.

    Args:
        wanted: the size of the run.
        connection: to the Docker engine that creates nodes; None: nodes are processes of this machine.
        image: of the nodes.
    """
    gpu = find_hook("gpu_checks") if wanted.gpus or wanted.gpu_test else None
    return cast("list[Check]", gpu(wanted, connection, image) if gpu else [])
