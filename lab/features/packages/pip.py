"""A call of pip: what it says is told while it says it, its silence has a deadline, and it does not outlive the lab."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from lab.errors import ClusterError
from lab.features.packages import pip_program
from lab.features.packages.failure import pip_failed
from lab.features.packages.target import Target, probe_text
from lab.spec.reading import shown
from lab.words import clip, format_duration

SILENT_S = 900.0
"""Seconds without any word from pip after which it is given up."""
_ENVIRONMENT = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_NO_COLOR": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_REQUIRE_VIRTUALENV": "0",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PYTHONUNBUFFERED": "1",
    "PYTHONIOENCODING": "utf-8",
}
_WORTH_TELLING = ("Collecting ", "Downloading ")
_LONGEST = 100


def run_pip(target: Target, arguments: Sequence[str], folder: Path, tell: Callable[[str], None]) -> None:
    """Run pip for the packages of a Python, in a folder; its index and options are those of whoever calls.

    Raises:
        LabError: pip is not there, or fails, or says nothing for too long.
    """
    program = Path(pip_program.__file__).read_text()
    said = _follow(
        [sys.executable, "-c", program, json.dumps(dict(target.markers)), target.executable, *arguments], folder, tell
    )
    if said.code:
        raise pip_failed(said.code, said.lines, target)


def run_program(program: str, argument: str, folder: Path, what: str) -> None:
    """Run the text of a program with the lab's own Python, in a folder.

    Raises:
        ClusterError: it fails.
    """
    said = _follow([sys.executable, "-I", "-c", program, argument], folder, lambda _: None)
    if said.code:
        raise ClusterError(f"{what} failed: {shown(said.lines[-1] if said.lines else said.code, 300)}")


def ask_python(python: str, what: str, folder: Path, *packages: str) -> Target:
    """What a Python of this machine has, with what is in further folders of packages.

    Raises:
        ClusterError: it does not say.
    """
    said = _follow([python, "-c", probe_text(), *packages], folder, lambda _: None)
    return Target.told(what, "\n".join(said.lines))


class _Said:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.code = 0


def _follow(command: Sequence[str], folder: Path, tell: Callable[[str], None]) -> _Said:
    said, lines = _Said(), queue.SimpleQueue[str | None]()
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **_ENVIRONMENT},
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    assert process.stdout is not None
    threading.Thread(target=_pump, args=(process.stdout, lines), name="lab-pip", daemon=True).start()
    try:
        while (line := _next(lines)) is not None:
            said.lines.append(line)
            if line.startswith(_WORTH_TELLING):
                tell(f"packages: {clip(_brief(line), _LONGEST)}")
            elif line.startswith("WARNING: Retrying "):
                tell("packages: the index does not answer, pip tries again")
        said.code = process.wait(timeout=SILENT_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(timeout=SILENT_S)
    return said


def _pump(stream: IO[str], lines: queue.SimpleQueue[str | None]) -> None:
    with stream:
        for line in stream:
            lines.put("".join(one if one.isprintable() else repr(one)[1:-1] for one in line.rstrip()))
    lines.put(None)


def _next(lines: queue.SimpleQueue[str | None]) -> str | None:
    try:
        return lines.get(timeout=SILENT_S)
    except queue.Empty:
        raise ClusterError(
            f"no word from pip for {format_duration(SILENT_S)}", "try `pip download` of the same packages by hand"
        ) from None


def _brief(line: str) -> str:
    """`downloading tqdm-4.67.1-py3-none-any.whl (78 kB)`: without addresses, which may hold passwords."""
    word, _, rest = line.partition(" ")
    parts = rest.split()
    name = parts[0].rpartition("/")[2].partition("#")[0] if parts else ""
    size = f" {' '.join(parts[1:])}" if word == "Downloading" and len(parts) > 1 else ""
    return f"{word.lower()} {name}{size}"
