"""What `lab doctor` says of the machine itself: Python, memory, cores, disk."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from lab.engine.protocol import Finding, Wanted
from lab.words import format_bytes

AGENT_BYTES = 150 * 1024**2
"""What an idle agent with torch imported holds."""
WORKER_BYTES = 120 * 1024**2
"""What a small script adds for each worker."""
_MIN_DISK_BYTES = 1 << 30


def examine_machine(wanted: Wanted) -> list[Finding]:
    """Python, memory, cores and disk for the size that is wanted."""
    return [_python(), memory_finding(_available_bytes(), wanted), cores_finding(os.cpu_count() or 1, wanted), _disk()]


def memory_finding(available_bytes: int | None, wanted: Wanted) -> Finding:
    """Whether memory suffices for the nodes and workers that are wanted."""
    needed = wanted.nodes * (AGENT_BYTES + wanted.nproc_per_node * WORKER_BYTES)
    if available_bytes is None:
        return Finding(level="warning", what="memory", found="the system does not say how much is free")
    found = f"{format_bytes(available_bytes)} available, about {format_bytes(needed)} needed for {_size(wanted)}"
    if available_bytes < needed:
        return Finding(level="failed", what="memory", found=found, fix="use fewer nodes, or close something")
    return Finding(level="ok", what="memory", found=found)


def cores_finding(cores: int, wanted: Wanted) -> Finding:
    """Whether there are cores enough for the workers to make sense."""
    workers = wanted.nodes * wanted.nproc_per_node
    found = f"{cores} for {workers} workers"
    if workers > 8 * cores:
        return Finding(level="warning", what="cores", found=found, fix="expect waiting; use fewer workers for timings")
    return Finding(level="ok", what="cores", found=found)


def _size(wanted: Wanted) -> str:
    return f"{wanted.nodes} nodes x {wanted.nproc_per_node} processes"


def _python() -> Finding:
    return Finding(level="ok", what="python", found=f"{sys.version.split()[0]} ({sys.executable})")


def _available_bytes() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free
    found = f"{format_bytes(free)} free for records in {Path.cwd()}"
    if free < _MIN_DISK_BYTES:
        return Finding(level="warning", what="disk", found=found, fix="free some space, or use --runs")
    return Finding(level="ok", what="disk", found=found)
