"""What `lab doctor` says of the local engine."""

from __future__ import annotations

import importlib.metadata
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lab import DISTRIBUTION
from lab.engine.doctor import Check, Wanted, gpu_checks
from lab.node.recorder import build

_FILES_PER_WORKER = 16
_GPU_DEADLINE_S = 270


def examine(home: Path, wanted: Wanted) -> list[Check]:
    """Whether local nodes can start: torch, loopback addresses, a short path, open files."""
    return [*_torch(), _home(home), _files(wanted), *gpu_checks(wanted, None, run_here)]


def run_here(
    words: Sequence[str], variables: Mapping[str, str], read: Callable[[str, int, str], list[Check]]
) -> list[Check]:
    """Run a self-test with this interpreter, which is that of local nodes."""
    try:
        done = subprocess.run(
            [sys.executable, *words],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_GPU_DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [Check("failed", "gpu test", f"no end after {_GPU_DEADLINE_S} s", "see nvidia-smi and dmesg")]
    return read(done.stdout, done.returncode, done.stderr)


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
