"""Where what is made of packages is kept, by what name, and that nobody makes the same twice at once."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab.errors import ClusterError, ClusterUnfit
from lab.node.recorder.build import cache_folder
from lab.spec.requirements import wheel_path
from lab.words import format_duration

_FORMAT = "1"
"""Raised when what is made of the same requirements changes."""
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
                digest.update(Path(path).read_bytes())
            except OSError as error:
                raise ClusterUnfit(f"cannot read the wheel {path}: {error.strerror}") from error
    return digest.hexdigest()[:16]


@contextmanager
def making(key: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Hold what keeps others from making the same; whoever has made it meanwhile is waited for.

    Raises:
        ClusterError: somebody takes too long, or the folder cannot be written.
    """
    path = store() / "locks" / key
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ClusterError(
            f"cannot write {path}: {error.strerror}", "set XDG_CACHE_HOME to a folder of yours"
        ) from error
    try:
        end, told = time.monotonic() + _WAIT_S, False
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    tell("packages: another command is making them ready, waiting for it")
                told = True
                if time.monotonic() > end:
                    raise ClusterError(
                        f"another command has been making these packages ready for {format_duration(_WAIT_S)}"
                    ) from None
                time.sleep(_POLL_S)
        yield
    finally:
        os.close(fd)
