"""Virtual environments for local nodes: packages over the lab's own Python, whose torch they see.

An environment is named after what it is made of, so that it is made once, and nobody makes the same twice at once. It
lies in the cache of this user; one that was made only in part has no `made.json`, and is made again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import site
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from lab.engine.local.state import ENGINE, PACKAGES_VARIABLE
from lab.engine.packages import Prepared
from lab.errors import ClusterError, ClusterUnfit
from lab.features.packages.pip import ask_python, run_program
from lab.features.packages.requirements import wheel_path
from lab.features.packages.target import Target
from lab.features.packages.wheels import check_wheels, fetch_wheels, install_request, library_folder, program_text
from lab.node.recorder.build import cache_folder
from lab.node.remove import remove_tree
from lab.waiting import wait_until
from lab.words import format_bytes, format_duration, format_limit

OWN = "the lab's own Python"
_MADE = "made.json"
Tell = Callable[[str], None]


def environment_for(requirements: Sequence[str]) -> Path:
    """The folder of the environment with these packages, whether it is there or not."""
    return _folder() / key_of(_below(), requirements)


def ensure_environment(requirements: Sequence[str], tell: Tell, *, again: bool = False) -> Path:
    """The folder of the environment with these packages, which is made if it is not there, or `again`.

    Raises:
        LabError: a requirement contradicts what is there, or cannot be fetched.
    """
    folder = environment_for(requirements)
    if not again and (folder / _MADE).exists():
        return folder
    with making(folder.name, tell) as work:
        if not again and (folder / _MADE).exists():  # made meanwhile
            return folder
        if again and _users(folder):
            raise ClusterError(f"{folder} is in use by a cluster that is up", "`lab down` first")
        target = ask_python(sys.executable, OWN, work)
        wheels = fetch_wheels(target, requirements, work, tell)
        check_wheels(target, wheels, whole_path=False)
        tell(f"packages: installing {len(wheels)} over {OWN}")
        try:
            _remove(folder)
            folder.parent.mkdir(parents=True, exist_ok=True)
            _make(folder, target, wheels, work)
            about = {"base": sys.executable, "requirements": requirements, "added": [path.name for path in wheels]}
            (folder / _MADE).write_text(json.dumps(about))
        except BaseException as error:
            _remove(folder)
            if isinstance(error, OSError):
                raise cannot_write(error) from error
            raise
    return folder


def _make(folder: Path, target: Target, wheels: Sequence[Path], work: Path) -> None:
    request = install_request(target, str(folder), [str(path) for path in wheels], str(library_folder().parent))
    run_program(program_text(), request, work, "installing the packages")


def environments() -> list[Prepared]:
    """Those that are there, by name; one that was made only in part has neither packages nor a base."""
    return [_read(folder) for folder in sorted(_folder().glob("*"))]


def remove_environment(name: str) -> str:
    """Remove an environment; returns why that cannot be, empty if it was done."""
    folder = Path(name)
    if _users(folder):
        return "a cluster uses it"
    with making(folder.name, lambda _: None):
        _remove(folder)
    return ""


def _folder() -> Path:
    return store() / "environments"


def _below() -> str:
    """What an environment is made upon: this Python, and all that it has."""
    names = sorted(name for path in _folders_below() for name in _distributions(path))
    return "\n".join((sys.executable, sys.version, *_folders_below(), *names))


def _distributions(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return []


def _folders_below() -> list[str]:
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return [folder for folder in folders if os.path.isdir(folder)]


def _read(folder: Path) -> Prepared:
    try:
        about = json.loads((folder / _MADE).read_text())
    except (OSError, ValueError):
        about = {"base": "", "requirements": [], "added": []}
    return Prepared(name=str(folder), engine=ENGINE, size_bytes=_size_bytes(folder), **about)


def _size_bytes(folder: Path) -> int:
    files = (os.path.join(top, name) for top, _, names in os.walk(folder) for name in names)
    return sum(os.lstat(path).st_size for path in files)


def _remove(folder: Path) -> None:
    (folder / _MADE).unlink(missing_ok=True)  # what is left after a kill in between is no environment
    if not remove_tree(folder):
        raise ClusterError(f"{folder} cannot be removed", "remove it by hand")


def _users(folder: Path) -> list[int]:
    """The agents whose workers use it."""
    wanted, found = f"{PACKAGES_VARIABLE}={folder}".encode(), []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.append(int(entry))
        except OSError:
            continue
    return found


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
