"""Modules that are imported once a test uses them: each process that runs tests imports the modules of all tests."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Late:
    """A module that is imported when something of it is used; it is PyTorch, or imports it."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "pytest")):  # what pytest asks of everything in a module
            raise AttributeError(name)
        return getattr(import_module(self._module), name)


torch: Any = Late("torch")
python_group: Any = Late("lab.node.recorder.python_group")
