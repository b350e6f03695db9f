"""What a recorded command needs: the package with the recorder, a socket for statements, and the environment.

Each session of `pytest --lab` imports this twice, so it imports the rest on use.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from lab.node.statement import SETTINGS_VARIABLE, SOCKET_VARIABLE

LONGEST_MESSAGE = 1 << 16
"""Bytes of a message between pytest and the process that records its tests."""
INTERRUPT, INTERRUPT_WAIT = signal.SIGRTMAX - 3, signal.SIGRTMAX - 4
"""Make the main thread of pytest end its test: at once, and only if it waits for another process."""
_STARTUP = Path("labnode", "node", "startup")
_LONGEST_PATH_BYTES = 100
"""Limit for the path of a socket; Linux allows 107."""


def install_package() -> Path:
    """Return a folder with the node's files for this version of the lab, and write it if it is new.

    It contains nothing but these files: a recorded process has it at the end of `sys.path`.

    Raises:
        OSError: it cannot be written.
    """
    import compileall
    import tempfile

    from lab.engine.payload import node_files, write_node_files
    from lab.node.contents import new_digest
    from lab.node.recorder.build import cache_folder

    name: str = new_digest(repr(sorted(node_files().items())).encode()).hexdigest()
    folder = Path(cache_folder()).parent / "recorded" / name
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            write_node_files(Path(made, "package"))
            compileall.compile_dir(Path(made, "package"), ddir=str(folder), quiet=2)  # processes may write no bytecode
            try:
                Path(made, "package").rename(folder)
            except OSError:
                if not folder.is_dir():  # else another command was faster
                    raise
    return folder


def socket_path(package: Path) -> Path:
    """Return a new path for the socket of a command, and remove what killed commands have left."""
    from lab.node.files import remove_tree

    for left in package.parent.glob("*.socket"):
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            try:
                channel.connect(str(left))
            except ConnectionRefusedError:
                left.unlink()
                remove_tree(left.with_suffix(""))  # records of a session of pytest
    path = package.parent / f"{os.getpid()}-{time.monotonic_ns()}.socket"
    if len(os.fsencode(path)) <= _LONGEST_PATH_BYTES:
        return path
    from tempfile import gettempdir

    return Path(gettempdir(), f"lab-record-{path.name}")


def recorded_environment(package: Path, folder: Path, values: int | None, notes: Path) -> dict[str, str]:
    """Return the environment of a recorded command: this process's own, and what loads the recorder.

    Args:
        package: see `install_package`.
        folder: the folder of the user's scripts.
        values: limit of recorded elements for each side of a call; None: the default.
        notes: socket for the statements of recorded processes.
    """
    before = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join(filter(None, (str(package / _STARTUP), before)))
    settings = json.dumps({"folder": str(folder), "values": values, "moves": True})
    return {**os.environ, "PYTHONPATH": path, SETTINGS_VARIABLE: settings, SOCKET_VARIABLE: str(notes)}


_OWN = str(Path(__file__).parents[3])
"""This lab comes before any other folder `lab`."""


def start_python(program: str, **how: Any) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, without output, with the path of this Python.

    Args:
        program: Its text.
        how: Arguments of `Popen`.
    """
    path = [_OWN, *map(os.path.abspath, sys.path)]
    words = [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {path!r}; {program}"]  # it needs no `site`
    silent = subprocess.DEVNULL
    return subprocess.Popen(words, stdout=silent, stderr=silent, start_new_session=True, **how)
