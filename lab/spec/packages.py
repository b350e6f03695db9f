"""Packages that scripts need besides what nodes have, as pip takes them: the feature `packages` reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.errors import UsageError
from lab.feature import hook

KEY = "requirements"
"""The key of scenarios that names them."""
_HEAD_BYTES = 1024 * 1024


def merged(*lists: Sequence[str]) -> tuple[str, ...]:
    """All of them, in the order of their names; of a package that several lists name, what the last of them says."""
    given = [one for one in lists if one]
    return _read("merged_requirements", *given) if len(given) > 1 else tuple(*given)


def checked_requirements(texts: Sequence[str]) -> tuple[str, ...]:
    """Those that somebody names in Python; paths of wheels are relative to the current folder.

    Raises:
        UsageError: one is none.
    """
    return _read("checked_requirements", texts) if texts else ()


def requirements_in(path: Path) -> tuple[str, ...]:
    """Those in a file of pip's format.

    Raises:
        ScenarioError: a line is none; the message names every such line.
    """
    return _read("requirements_in", path)


def named_by(script: Path) -> tuple[str, ...]:
    """Those that a script names at its head (PEP 723); most name none.

    Raises:
        ScenarioError: what it says cannot be read.
    """
    try:
        with open(script, "rb") as file:
            if b"# /// script" not in file.read(_HEAD_BYTES):
                return ()
    except OSError:  # whoever ships it says why
        return ()
    return _read("requirements_of_script", script)


def _read(how: str, *of: Any) -> tuple[str, ...]:
    reader = hook(how)
    if reader is None:
        raise UsageError("packages are of the feature packages, which is not there")
    found: tuple[str, ...] = reader(*of)
    return found
