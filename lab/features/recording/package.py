"""Make the files that recorded processes load, and the environment that makes every Python load them."""

from __future__ import annotations

import compileall
import json
import os
import signal
import socket
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from lab.engine.payload import node_files
from lab.node.contents import new_digest
from lab.node.rank.joining import SETTINGS_VARIABLE, make_environment
from lab.node.recorder.build import cache_folder
from lab.node.statement import SOCKET_VARIABLE

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
    files = node_files()
    name: str = new_digest(repr(sorted(files.items())).encode()).hexdigest()
    folder = Path(cache_folder()).parent / "recorded" / name
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            for path, content in files.items():
                target = Path(made, "package", path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            compileall.compile_dir(Path(made, "package"), ddir=str(folder), quiet=2)  # processes may write no bytecode
            try:
                Path(made, "package").rename(folder)
            except OSError:
                if not folder.is_dir():  # else another command was faster
                    raise
    return folder


def socket_path(package: Path) -> Path:
    """Return a new path for the socket of a command, and remove sockets that killed commands have left."""
    for left in package.parent.glob("*.socket"):
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            try:
                channel.connect(str(left))
            except ConnectionRefusedError:
                left.unlink()
    name = f"{os.getpid()}-{time.monotonic_ns()}.socket"
    path = package.parent / name
    return path if len(os.fsencode(path)) <= _LONGEST_PATH_BYTES else Path(tempfile.gettempdir(), f"lab-record-{name}")


def recorded_environment(package: Path, folder: Path, values: int | None, notes: Path) -> Mapping[str, str]:
    """Return the environment of a recorded command: this process's own, and what loads the recorder.

    Args:
        package: see `install_package`.
        folder: the folder of the user's scripts.
        values: limit of recorded elements for each side of a call; None: the default.
        notes: socket for the statements of recorded processes.
    """
    before = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join(filter(None, (str(package / _STARTUP), before)))
    settings = {**json.loads(make_environment(str(folder), values, before)[SETTINGS_VARIABLE]), "moves": True}
    own = {SETTINGS_VARIABLE: json.dumps(settings), SOCKET_VARIABLE: str(notes)}
    return {**os.environ, "PYTHONPATH": path, **own}
