"""The cluster that a file of tests will ask for first, read from its source: it is made while the file is imported."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lab.engine.select import CHOICES

_SAID = b"lab.distributed"
_MARKED = b"mark.lab"
"""A marker may ask for another one: then nothing is made ahead."""
_SHAPE = ("nodes", "nproc_per_node", "engine")
_OTHERS = ("timeout_s", "fresh")


class Ahead:
    """Does one thing in a thread."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._begun = False

    def begin(self, action: Callable[[], object]) -> None:
        """Begin with it; only the first time counts. If it fails, whoever asks for it will be told."""
        if self._begun:
            return
        self._begun = True

        def act() -> None:
            with suppress(Exception):  # what is wrong is said by the test that asks for it
                action()

        self._thread = threading.Thread(target=act, name="lab-ahead", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until it is done; it need not wait for itself."""
        thread, me = self._thread, threading.current_thread()
        if thread is not None and thread is not me:
            thread.join()
            self._thread = None


def make_ahead(path: Path, config: pytest.Config) -> None:
    """Begin to make the cluster of the first function in a file that is marked as distributed, if it will be used."""
    chosen = (config.getoption(name, None) for name in ("collectonly", "keyword", "markexpr", "setupplan", "setuponly"))
    if any(chosen) or hasattr(config, "workerinput") or any("::" in word for word in config.args):
        return
    shape = shape_ahead(path)
    told = config.getoption("lab_engine")
    if shape is None or ("auto" not in (told, shape.get("engine", "auto")) and shape["engine"] != told):
        return
    from lab.features.pytest.pool import pool_of

    pool = pool_of(config)
    pool.ahead.begin(lambda: pool.cluster(**shape))


def shape_ahead(path: Path) -> dict[str, Any] | None:
    """What the first `lab.distributed(...)` of a file says of its cluster; None where that cannot be read."""
    try:
        source = path.read_bytes()
        if _SAID not in source or _MARKED in source:
            return None
        tree = ast.parse(source)
    except (OSError, ValueError, SyntaxError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lab.distributed":
            said = {word.arg: word.value for word in node.keywords if word.arg not in _OTHERS}
            if node.args or not all(isinstance(value, ast.Constant) for value in said.values()):
                return None
            shape = {str(name): value.value for name, value in said.items() if isinstance(value, ast.Constant)}
            fits = all(
                name in _SHAPE and type(value) is (str if name == "engine" else int) for name, value in shape.items()
            )
            return shape if fits and shape.get("engine", "auto") in CHOICES else None
    return None
