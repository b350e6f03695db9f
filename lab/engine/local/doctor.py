"""What `lab doctor` says of the local engine."""

from __future__ import annotations

import importlib.metadata
import os
import resource
import sys
from pathlib import Path

from lab.engine.doctor import Check, Wanted
from lab.node.recorder import build

_FILES_PER_WORKER = 16


def examine(home: Path, wanted: Wanted) -> list[Check]:
    """Whether local nodes can start: torch, loopback addresses, a short path, open files."""
    return [*_torch(), _home(home), _files(wanted)]


def _torch() -> list[Check]:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return [Check(level="failed", what="torch", found="not installed", fix="pip install 'lab[local]'")]
    return [Check(level="ok", what="engine", found=f"local, with torch {version}"), _recorder(version)]


def _recorder(torch: str) -> Check:
    if Path(build.cache_folder(), build.file_name(torch)).is_file():
        return Check(level="ok", what="recorder", found=f"compiled, in {build.cache_folder()}")
    found = f"the one in Python; `{Path(sys.executable).name} -m {build.__name__}` builds a faster one"
    return Check(level="ok", what="recorder", found=found)


def _home(home: Path) -> Check:
    longest = len(os.fsencode(home)) + len("/") + 40 + len("/node249/run/notes")
    if longest > 107:
        return Check(
            level="failed",
            what="folder",
            found=f"{home} is too long for Unix sockets",
            fix="set LAB_LOCAL_HOME to a short path",
        )
    return Check(level="ok", what="folder", found=str(home))


def _files(wanted: Wanted) -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 64 + wanted.nodes * wanted.nproc_per_node * _FILES_PER_WORKER
    found = f"{soft} open files allowed, about {needed} needed"
    if soft < needed:
        return Check(level="warning", what="open files", found=found, fix=f"ulimit -n {needed}")
    return Check(level="ok", what="open files", found=found)
