"""What `lab doctor` says of the local engine."""

from __future__ import annotations

import importlib.metadata
import os
import resource
import sys
from pathlib import Path

from lab import DISTRIBUTION
from lab.engine.doctor import Check, Wanted, gpu_checks, look
from lab.feature import hook
from lab.node.recorder import build

_FILES_PER_WORKER = 16


def examine(home: Path, wanted: Wanted) -> list[Check]:
    """Whether local nodes can start: torch, loopback addresses, a short path, open files."""
    found = [*_torch(), _home(home), _files(wanted)]
    if wanted.gpus:
        found += gpu_checks(look(None), wanted.gpus, wanted.nodes)
    return [*found, *(hook("gpu_test").self_test_here() if wanted.gpu_test else ())]


def _torch() -> list[Check]:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return [Check("failed", "torch", "not installed", f"pip install '{DISTRIBUTION}[local]'")]
    return [Check("ok", "engine", f"local, with torch {version}"), _recorder(version)]


def _recorder(torch: str) -> Check:
    if Path(build.cache_folder(), build.file_name(torch)).is_file():
        return Check("ok", "recorder", f"compiled, in {build.cache_folder()}")
    found = f"the one in Python; `{Path(sys.executable).name} -m {build.__name__}` builds a faster one"
    return Check("ok", "recorder", found)


def _home(home: Path) -> Check:
    longest = len(os.fsencode(home)) + len("/") + 40 + len("/node9999/run/n4194304")
    if longest > 107:
        return Check("failed", "folder", f"{home} is too long for Unix sockets", "set LAB_LOCAL_HOME to a short path")
    return Check("ok", "folder", str(home))


def _files(wanted: Wanted) -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 64 + wanted.nodes * wanted.nproc_per_node * _FILES_PER_WORKER
    found = f"{soft} open files allowed, about {needed} needed"
    if soft < needed:
        return Check("warning", "open files", found, f"ulimit -n {needed}")
    return Check("ok", "open files", found)
