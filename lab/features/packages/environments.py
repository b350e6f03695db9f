"""Virtual environments for local nodes: packages over the lab's own Python, whose torch they see.

An environment is named after what it is made of, so that it is made once. It lies in the cache of this user; one that
was made only in part has no `made.json`, and is made again.
"""

from __future__ import annotations

import json
import os
import site
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.engine.local.layout import PACKAGES_VARIABLE
from lab.engine.local.state import ENGINE
from lab.engine.packages import Prepared
from lab.errors import ClusterError
from lab.features.packages.contents import check_wheels
from lab.features.packages.install import install_request, library_folder, program_text
from lab.features.packages.pip import ask_python, run_program
from lab.features.packages.store import cannot_write, key_of, making, store
from lab.features.packages.target import Target
from lab.features.packages.wheels import fetch_wheels
from lab.node.remove import remove_tree

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
