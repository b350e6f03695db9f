"""Modules of this machine for nodes that lack them: the caller's own code, and what makes functions and tests work."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import posixpath
import site
import sys
import sysconfig
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import lab

LENT_PACKAGES = frozenset(
    {
        "_pytest",
        "cloudpickle",
        "exceptiongroup",
        "iniconfig",
        "packaging",
        "pluggy",
        "py",
        "pygments",
        "pytest",
        "tomli",
    }
)
"""Installed ones that are lent, all of Python alone; others have to be named as requirements of the cluster."""
_PARTS = {"pygments/lexers": ("__init__.py", "_mapping.py", "diff.py", "python.py")}
"""Of these folders only so much is lent: the rest is megabytes that nobody asks for."""
_INSTALLED = {"site-packages", "dist-packages"}
"""Folders that packages are installed in: those of this interpreter, and of others whose packages it is told of."""
_LIMIT_BYTES = 32 << 20
_SKIPPED = {"__pycache__", "node_modules"}
_TEXT = (".py", ".pyi", ".txt", ".json", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".csv")


@dataclass(frozen=True, kw_only=True)
class Loan:
    """A module for a rank."""

    body: bytes
    """See `lab.node.lent.Lent`."""
    shown: dict[str, str] = field(default_factory=dict)
    """Where files are here, by what ranks call them."""


def lend(name: str, folder: str) -> Loan:
    """A module with all that is below it, if it may be lent; nothing is imported for that.

    Args:
        name: without a dot; may come from somebody who would like to harm.
        folder: files below it are called by their path there.
    """
    files, own = dict[str, str](), dict[str, str]()
    shown: dict[str, str] = {}
    place = _find(name) if name.isidentifier() else None
    if place is not None and (is_own(str(place)) or name in LENT_PACKAGES):
        base, size = place.parent, 0
        for path in _files(place):
            below = path.relative_to(base).as_posix()
            if path.name not in _PARTS.get(posixpath.dirname(below), (path.name,)):
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            size += len(text)
            if size > _LIMIT_BYTES:
                files = {}
                break
            files[below] = text
            if is_own(str(path)):
                own[below] = called(str(path), folder) if path.is_relative_to(folder) else below
                shown[own[below]] = str(path)
            else:
                shown[f"<lent>/{below}"] = str(path)
    body = json.dumps({"name": name, "files": files, "own": own}, separators=(",", ":")).encode("utf-8", "replace")
    return Loan(body=body, shown=shown)


def called(path: str, folder: str) -> str:
    """What ranks call a source file of this machine: its path below a folder, or below the current one."""
    if path.startswith("<") or not os.path.isabs(path):
        return path
    for place in (folder, os.getcwd(), os.path.dirname(os.path.dirname(path))):
        if path.startswith(os.path.join(place, "")):
            return os.path.relpath(path, place)
    return os.path.basename(path)


@cache
def is_own(path: str) -> bool:
    """Whether a file is the caller's own code: neither of Python nor an installed package, wherever that lies."""
    real = os.path.join(os.path.realpath(path), "")
    if not _INSTALLED.isdisjoint([*path.split(os.sep), *real.split(os.sep)]):
        return False
    return not any(real.startswith(os.path.join(folder, "")) for folder in _installed())


@cache
def _installed() -> tuple[str, ...]:
    named = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    folders = {*named, *site.getsitepackages(), site.getusersitepackages(), *lab.__path__}
    return tuple(sorted({os.path.realpath(folder) for folder in folders}))


def _find(name: str) -> Path | None:
    """The file or folder of a module."""
    loaded = sys.modules.get(name)
    spec = getattr(loaded, "__spec__", None)
    if spec is None:
        try:
            spec = importlib.machinery.PathFinder.find_spec(name)
        except (ImportError, ValueError, AttributeError):
            spec = None
    file = getattr(loaded, "__file__", None) if spec is None else spec.origin
    if spec is not None and spec.submodule_search_locations:
        locations = list(spec.submodule_search_locations)
        return Path(locations[0]) if locations else None
    return Path(file) if isinstance(file, str) and file.endswith(".py") else None


def _files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    found = []
    for folder, folders, names in os.walk(place):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        found += [Path(folder, name) for name in sorted(names) if name.endswith(_TEXT)]
    return [path for path in found if path.is_file() and not path.is_symlink()]
