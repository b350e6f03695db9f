"""Read the stacks of running Pythons with py-spy, which reads their memory and does not pause them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from lab import DISTRIBUTION
from lab.features.attach.processes import Unable, read_process

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
