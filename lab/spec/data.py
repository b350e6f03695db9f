"""Folders of this machine that ranks read under a name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from lab.errors import UsageError
from lab.spec.kinds import Kind, read_text
from lab.spec.reading import Value, names_in, near, shown

_NAME = "[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"
_NAMES = "letters, digits, '.', - and _, up to 63, a letter or digit first"
_FOLDER = "the path of a folder on this machine, such as ../datasets/mnist"


def data_folders() -> Kind:
    """Folders by name; a relative path is relative to the YAML file."""
    allowed = "a mapping of names to folders, such as {mnist: ../datasets/mnist}"

    def read(value: Value) -> dict[str, Path]:
        folders = {}
        for key, item in value.pairs(allowed):
            with value.reading.attempt():
                name = key.as_key()
                wrong = name_problem(name)
                if wrong:
                    raise key.problem(wrong)
                text = read_text(item, _FOLDER)
                path = Path(os.path.abspath(value.reading.folder / os.path.expanduser(text)))
                wrong = folder_problem(path)
                if wrong:
                    raise item.refused(_FOLDER, f", but {wrong}")
                folders[name] = path
        return folders

    schema = {"type": "object", "propertyNames": {"pattern": f"^{_NAME}$"}, "additionalProperties": {"type": "string"}}
    return Kind(allowed, read, schema, lambda data: {name: str(path) for name, path in data.items()})


def checked_folders(data: Mapping[str, str | Path]) -> dict[str, Path]:
    """Folders that somebody names in Python, with absolute paths.

    Raises:
        UsageError: a name is not allowed, or a folder cannot be read.
    """
    found = {name: Path(os.path.abspath(os.path.expanduser(folder))) for name, folder in data.items()}
    wrong = [name_problem(name) or folder_problem(folder) for name, folder in found.items()]
    if any(wrong):
        raise UsageError(f"data: {next(filter(None, wrong))}")
    return found


def name_problem(name: str) -> str:
    """Why data may not have this name; empty if it may."""
    return "" if re.fullmatch(_NAME, name) else f"found the name {shown(name)}; allowed: {_NAMES}"


def folder_problem(path: Path) -> str:
    """Why ranks cannot read a folder; empty if they can."""
    told = shown(str(path), 1000)
    if not os.path.exists(path):
        found = near(path.name, [name for name in names_in(path.parent) if (path.parent / name).is_dir()])
        meant = f" (did you mean {str(path.parent / found)!r}?)" if found else ""
        return f"{told} does not exist on this machine{meant}"
    if not os.path.isdir(path):
        return f"{told} is not a folder"
    return "" if os.access(path, os.R_OK | os.X_OK) else f"{told} cannot be read: Permission denied"
