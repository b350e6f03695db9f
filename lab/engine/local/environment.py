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
from dataclasses import replace
from pathlib import Path

from lab.engine.local.state import ENGINE
from lab.engine.packages.pip import ask_python, run_pip
from lab.engine.packages.prepared import Prepared
from lab.engine.packages.store import cannot_write, key_of, making, store
from lab.engine.packages.target import Target
from lab.engine.packages.wheels import fetch_wheels
from lab.errors import ClusterError
from lab.node.remove import remove_tree

OWN = "the lab's own Python"
_MADE = "made.json"
_BELOW = "lab-below.pth"
"""Names the folders of packages of the Python below: those are seen where the environment has nothing of that name."""
Tell = Callable[[str], None]


def python_for(requirements: Sequence[str]) -> Path:
    """The Python of the environment with these packages, whether it is there or not; without any, the lab's own."""
    if not requirements:
        return Path(sys.executable)
    return _folder() / key_of(_below(), requirements) / "bin" / "python"


def ensure_environment(requirements: Sequence[str], tell: Tell, *, again: bool = False) -> Path:
    """The folder of the environment with these packages, which is made if it is not there, or `again`.

    Raises:
        LabError: a requirement contradicts what is there, or cannot be fetched.
    """
    folder = python_for(requirements).parents[1]
    if not again and (folder / _MADE).exists():
        return folder
    with making(folder.name, tell) as work:
        if not again and (folder / _MADE).exists():  # made meanwhile
            return folder
        if again and _users(folder):
            raise ClusterError(f"{folder} is in use by a cluster that is up", "`lab down` first")
        target = ask_python(sys.executable, OWN, work)
        wheels = fetch_wheels(target, requirements, work, tell)
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
    import venv

    venv.EnvBuilder(symlinks=True).create(folder)
    library = next(folder.glob("lib/python*/site-packages"))
    (library / _BELOW).write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in _folders_below()))
    if wheels:
        options = ["--isolated", "--no-index", "--no-deps", "--ignore-installed", "--no-warn-script-location"]
        python = str(folder / "bin" / "python")
        of_it = replace(target, executable=python)
        run_pip(of_it, ["install", *options, *map(str, wheels)], work, lambda _: None, python)


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
    """Processes that run its Python."""
    wanted, found = os.fsencode(folder) + b"/", []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                if file.read(4096).startswith(wanted):
                    found.append(int(entry))
        except OSError:
            continue
    return found
