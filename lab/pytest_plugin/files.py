"""Which YAML files are scenarios. Cheap: every YAML file in the folders of every session comes by here."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

_SCRIPT = re.compile(rb"""^['"]?script['"]?[ \t]*:[ \t]+(?:'([^'\n]+)'|"([^"\n]+)"|([^\s'"#][^#\n]*))""", re.MULTILINE)
_HEAD_BYTES = 65536


def is_test(path: Path, parent: pytest.Collector) -> bool:
    """Whether a YAML file is a scenario, or one that somebody has named and that should be."""
    if parent.session.isinitpath(path):
        return True
    patterns = parent.config.getini("lab_files")
    return any(fnmatch(path.as_posix(), f"*/{pattern}") for pattern in patterns) and looks_like_one(path)


def looks_like_one(path: Path) -> bool:
    """Whether a YAML file names a script at its top level, as most files of others do not."""
    try:
        with path.open("rb") as file:
            found = _SCRIPT.search(file.read(_HEAD_BYTES))
    except OSError:
        return False
    if found is None:
        return False
    name = (found[1] or found[2] or found[3]).decode("utf-8", "replace").strip()
    return name.endswith(".py") or (path.parent / name).is_file()
