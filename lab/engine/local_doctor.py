"""What `lab doctor` says of the local engine."""

from __future__ import annotations

import importlib.metadata
import os
import resource
from pathlib import Path

from lab.engine.protocol import Finding, Wanted

_FILES_PER_WORKER = 16


def examine(home: Path, wanted: Wanted) -> list[Finding]:
    """Whether local nodes can start: torch, loopback addresses, a short path, open files."""
    return [_torch(), _home(home), _files(wanted)]


def _torch() -> Finding:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return Finding(level="failed", what="torch", found="not installed", fix="pip install 'lab[local]'")
    return Finding(level="ok", what="engine", found=f"local, with torch {version}")


def _home(home: Path) -> Finding:
    longest = len(os.fsencode(home)) + len("/") + 40 + len("/node249/run/notes")
    if longest > 107:
        return Finding(
            level="failed",
            what="folder",
            found=f"{home} is too long for Unix sockets",
            fix="set LAB_LOCAL_HOME to a short path",
        )
    return Finding(level="ok", what="folder", found=str(home))


def _files(wanted: Wanted) -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 64 + wanted.nodes * wanted.nproc_per_node * _FILES_PER_WORKER
    found = f"{soft} open files allowed, about {needed} needed"
    if soft < needed:
        return Finding(level="warning", what="open files", found=found, fix=f"ulimit -n {needed}")
    return Finding(level="ok", what="open files", found=found)
