"""Where what is made of packages is kept, by what name, and that nobody makes the same twice at once."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from lab.errors import ClusterError, ClusterUnfit
from lab.node.recorder.build import cache_folder
from lab.node.remove import remove_tree
from lab.spec.requirements import wheel_path
from lab.waiting import wait_until
from lab.words import format_bytes, format_duration, format_limit

_FORMAT = "2"
"""Raised when what is made of the same requirements changes."""
_MAX_WHEEL_BYTES = 4 << 30
"""Of one that is named by its path; the largest of PyTorch's have 1 GB."""
_WAIT_S = 1800.0
_POLL_S = 0.1


def store() -> Path:
    """The folder of this user for what the lab makes once and uses again."""
    return Path(cache_folder()).parent


def key_of(base: str, requirements: Sequence[str]) -> str:
    """The name of what is made of some requirements upon a base; wheels that lie on this machine count by content.

    Raises:
        ClusterUnfit: such a wheel is not there.
    """
    digest = hashlib.sha256("\n".join((_FORMAT, base, *requirements)).encode())
    for one in requirements:
        path = wheel_path(one.partition(" @ ")[2].partition(" ;")[0].strip()) if " @ " in one else None
        if path is not None:
            try:
                _add_file(digest, path)
            except OSError as error:
                raise ClusterUnfit(f"cannot read the wheel {path}: {error.strerror}") from error
    return digest.hexdigest()[:16]


def _add_file(digest: hashlib._Hash, path: str) -> None:
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > _MAX_WHEEL_BYTES:
            allowed = format_limit(_MAX_WHEEL_BYTES)
            raise ClusterUnfit(f"the wheel {path} has {format_bytes(size)}, and {allowed} are allowed")
        while piece := file.read(1 << 20):
            digest.update(piece)


@contextmanager
def making(key: str, tell: Callable[[str], None]) -> Iterator[Path]:
    """Hold what keeps others from making the same; whoever has made it meanwhile is waited for.

    Yields:
        An empty folder to work in, which is removed at the end, or by the next one who makes anything.

    Raises:
        ClusterError: somebody takes too long, or the folder cannot be written.
    """
    try:
        for folder in (_locks(), _work()):
            folder.mkdir(parents=True, exist_ok=True)
        lock = _open_lock(key)
    except OSError as error:
        raise cannot_write(error) from error
    with lock:
        _await(lock, tell)
        _sweep()
        folder = _work() / key
        remove_tree(folder)
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            remove_tree(folder)


def cannot_write(error: OSError) -> ClusterError:
    """That something cannot be kept."""
    why = f"cannot write {error.filename or store()}: {error.strerror or error}"
    return ClusterError(why, "make room, or set XDG_CACHE_HOME to a folder of yours")


def _locks() -> Path:
    return store() / "locks"


def _work() -> Path:
    return store() / "fetching"


def _await(lock: IO[bytes], tell: Callable[[str], None]) -> None:
    if _take(lock):
        return
    tell("packages: another command is making them ready, waiting for it")
    if not wait_until(lambda: _take(lock), _WAIT_S, _POLL_S):
        raise ClusterError(f"another command has been making these packages ready for {format_duration(_WAIT_S)}")


def _open_lock(key: str) -> IO[bytes]:
    return open(_locks() / key, "ab")


def _take(lock: IO[bytes]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sweep() -> None:
    """Remove what those left who were killed."""
    for folder in _work().iterdir():
        with _open_lock(folder.name) as lock:
            if _take(lock):
                remove_tree(folder)
