"""What `lab doctor` says of the local engine."""

from __future__ import annotations

import importlib.metadata
import os
import resource
import sys
from pathlib import Path

from lab.engine.protocol import Finding, Wanted
from lab.node.recorder import build

_FILES_PER_WORKER = 16


def examine(home: Path, wanted: Wanted) -> list[Finding]:
    """Whether local nodes can start: torch, loopback addresses, a short path, open files."""
    return [*_torch(), _home(home), _files(wanted)]


def _torch() -> list[Finding]:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return [Finding(level="failed", what="torch", found="not installed", fix="pip install 'lab[local]'")]
    return [Finding(level="ok", what="engine", found=f"local, with torch {version}"), _recorder(version)]


def _recorder(torch: str) -> Finding:
    if Path(build.cache_folder(), build.file_name(torch)).is_file():
        return Finding(level="ok", what="recorder", found=f"compiled, in {build.cache_folder()}")
    found = f"the one in Python; `{Path(sys.executable).name} -m {build.__name__}` builds one that takes less time"
    return Finding(level="ok", what="recorder", found=found)


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
