"""Files and folders that a scenario names: the script, the check, the volumes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from yaml.nodes import Node

from lab.spec.document import position_of
from lab.spec.problems import Position, Problems, did_you_mean, near, shown
from lab.spec.scenario import Volume
from lab.spec.values import items, refused, text

_SCRIPT = "the path of a script beside this file, such as train.py"
_CHECK = "file.py:function, both in the folder of the script"
_VOLUME = "/host/folder:/node/folder, with :ro behind it for read-only"
_CHECK_MAX_BYTES = 1024 * 1024


def script_path(node: Node, field: str, folder: Path) -> Path:
    """The script of a scenario: a file in the folder of the YAML file or below it.

    Args:
        node: the path as written, relative to `folder`.
        field: name of the field.
        folder: absolute folder of the YAML file.

    Returns:
        The absolute path; links in it are not followed.
    """
    value = text(node, field, _SCRIPT)
    path = _inside(node, field, value, folder, _SCRIPT)
    if os.path.isdir(path):
        raise refused(node, field, _SCRIPT, f", which is a folder{_holding(path)}")
    if not os.path.isfile(path):
        raise refused(node, field, _SCRIPT, f", which does not exist{_meant(value, folder)}")
    return path


def check_reference(node: Node, field: str, script: Path | None) -> str:
    """A `file.py:function` whose file lies in the folder of the script and defines the function.

    The file is parsed, never run: it runs inside a node.
    """
    value = text(node, field, _CHECK, quotable=False)
    file, colon, function = value.partition(":")
    if not colon or not file.endswith(".py") or not function.isidentifier():
        raise refused(node, field, _CHECK)
    if script is None:  # a problem of its own
        return value
    path = _inside(node, field, file, script.parent, _CHECK)
    if not os.path.isfile(path):
        raise refused(node, field, _CHECK, f", whose file does not exist{_meant(file, script.parent)}")
    names = _defined_names(path)
    if names is not None and function not in names:
        raise refused(node, field, _CHECK, f", but {file} defines no {function}{did_you_mean(function, names)}")
    return value


def volumes(node: Node, field: str, folder: Path, problems: Problems) -> tuple[Volume, ...]:
    """Host folders for the nodes; a relative source is relative to the YAML file."""
    mounted: dict[str, Position] = {}

    def volume(item: Node, item_field: str) -> Volume:
        found = _volume(item, item_field, folder)
        where = position_of(item)
        first = mounted.setdefault(found.target, where)
        if first != where:
            already = f", but line {first.line} mounts {found.target} already"
            raise refused(item, item_field, "one volume for each folder in the node", already)
        return found

    return items(node, field, f"a list of volumes, each {_VOLUME}", volume, problems)


def python_files(folder: Path) -> list[str]:
    """Names of the Python files of a folder, sorted; empty where it cannot be listed."""
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(".py"))
    except OSError:
        return []


def _volume(node: Node, field: str, folder: Path) -> Volume:
    value = text(node, field, _VOLUME, quotable=False)
    source, _, rest = value.partition(":")
    target, colon, mode = rest.partition(":")
    if not source or not target or (colon and mode not in ("ro", "rw")):
        raise refused(node, field, _VOLUME)
    if not target.startswith("/") or ".." in PurePosixPath(target).parts or not target.strip("/"):
        raise refused(node, field, f"{_VOLUME}; the folder in the node is absolute, without '..', and not /")
    path = Path(os.path.abspath(folder / source))
    if not os.path.exists(path):
        meant = _near_entry(path)
        raise refused(node, field, _VOLUME, f", but {shown(str(path), 1000)} does not exist on this host{meant}")
    return Volume(source=path, target=str(PurePosixPath(target)), read_only=mode == "ro")


def _inside(node: Node, field: str, value: str, folder: Path, allowed: str) -> Path:
    if not value.strip():
        raise refused(node, field, allowed)
    if os.path.isabs(value):
        raise refused(node, field, allowed, ", which is absolute")
    if ".." in re.split(r"[/\\]", value):
        raise refused(node, field, allowed, ", which leaves the folder by '..'")
    path = Path(os.path.abspath(folder / value))
    real, real_folder = os.path.realpath(path), os.path.realpath(folder)
    if os.path.commonpath((real, real_folder)) != real_folder:
        raise refused(node, field, allowed, f", a link that leaves the folder to {shown(real, 1000)}")
    return path


def _meant(value: str, folder: Path) -> str:
    path = PurePosixPath(value)
    names = python_files(folder / path.parent)
    found = near(path.name, names)
    if found is not None:
        return f" (did you mean {str(path.parent / found)!r}?)"
    return f"; the folder holds {', '.join(names[:10])}" if names else ""


def _holding(folder: Path) -> str:
    names = python_files(folder)
    return f" (did you mean {f'{folder.name}/{names[0]}'!r}?)" if len(names) == 1 else ""


def _near_entry(path: Path) -> str:
    try:
        names: Iterable[str] = os.listdir(path.parent)
    except OSError:
        return ""
    found = near(path.name, names)
    return f" (did you mean {str(path.parent / found)!r}?)" if found else ""


def _defined_names(path: Path) -> set[str] | None:
    """Every name that a Python file may bind; None where that cannot be told without running it."""
    import ast  # only scenarios with a check need it

    try:
        with open(path, "rb") as file:
            source = file.read(_CHECK_MAX_BYTES)
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names: set[str] = set()
    for part in ast.walk(tree):
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(part.name)
        elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            names.add(part.id)
        elif isinstance(part, ast.alias):
            names.add((part.asname or part.name).partition(".")[0])
    return None if "*" in names else names
