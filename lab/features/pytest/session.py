"""What the plugin needs of a session before anything heavy is imported."""

from __future__ import annotations

import ast
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from lab.engine.select import CHOICES

POOL: pytest.StashKey[Any] = pytest.StashKey()
"""The warm clusters of this process; there as soon as a test asks for one."""
DEADLINE: pytest.StashKey[float | None] = pytest.StashKey()
"""The monotonic time at which pytest-timeout ends the test that runs now."""
SAID: pytest.StashKey[list[str]] = pytest.StashKey()
"""Lines for the end of the session."""
_SHAPE = ("nodes", "nproc_per_node", "engine")
_NO_SHAPE = ("timeout_s", "fresh")


def is_test(path: Path, parent: pytest.Collector) -> bool:
    """Whether a YAML file is a scenario, or one that somebody has named and that should be."""
    if parent.session.isinitpath(path):
        return True
    patterns = parent.config.getini("lab_files")
    if not any(fnmatch(path.as_posix(), f"*/{pattern}") for pattern in patterns):
        return False
    from lab.spec.load import looks_like_one

    return looks_like_one(path)


def shape_to_make(path: Path, config: pytest.Config) -> dict[str, Any] | None:
    """The cluster that a file of tests will ask for first, if it is used and its source says which; else None."""
    chosen = (config.getoption(name, None) for name in ("collectonly", "keyword", "markexpr", "setupplan", "setuponly"))
    if any(chosen) or hasattr(config, "workerinput") or any("::" in word for word in config.args):
        return None
    shape, told = shape_ahead(path), config.getoption("lab_engine")
    fits = shape is not None and ("auto" in (told, shape.get("engine", "auto")) or shape["engine"] == told)
    return shape if fits else None


def shape_ahead(path: Path) -> dict[str, Any] | None:
    """What the first `lab.distributed(...)` of a file says of its cluster; None where that cannot be read.

    A marker `lab` may ask for another one: then nothing is read.
    """
    try:
        source = path.read_bytes()
        if b"lab.distributed" not in source or b"mark.lab" in source:
            return None
        tree = ast.parse(source)
    except (OSError, ValueError, SyntaxError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lab.distributed":
            words = {str(word.arg): word.value for word in node.keywords if word.arg not in _NO_SHAPE}
            shape = {name: value.value for name, value in words.items() if isinstance(value, ast.Constant)}
            fits = not node.args and len(shape) == len(words)
            for name, value in shape.items():
                fits &= name in _SHAPE and type(value) is (str if name == "engine" else int)
            return shape if fits and shape.get("engine", "auto") in CHOICES else None
    return None
