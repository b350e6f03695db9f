"""Modules that a node lacks and a caller has: requested when they are imported, and kept in memory."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import NamedTuple


class ShippedModule(NamedTuple):
    """A module of the caller, with everything below it."""

    name: str
    files: dict[str, str]
    """Text by path, relative to the folder that contains the module; empty: the caller does not send it."""
    own: dict[str, str]
    """Paths to show in stacks, for the caller's own code among these files. Other files have no path."""


class ShippedModuleFinder(importlib.abc.MetaPathFinder):
    """Finds modules that no other finder finds.

    Args:
        ask: requests one from the caller by its name, which has no dot; returns None if that is not possible now.
    """

    def __init__(self, ask: Callable[[str], ShippedModule | None]) -> None:
        self._ask = ask
        self._modules: dict[str, ShippedModule | None] = {}

    def add(self, module: ShippedModule) -> None:
        """Add a module that the caller sent without a request."""
        self._modules[module.name] = module

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module if the caller has it."""
        top = fullname.partition(".")[0]
        if top not in self._modules:
            if "." in fullname:
                return None  # part of a package that the node has
            self._modules[top] = self._ask(top)
        module, base = self._modules[top], fullname.replace(".", "/")
        for below, package in ((f"{base}/__init__.py", True), (f"{base}.py", False)):
            if module is not None and below in module.files:
                loader = _Loader(module, below)
                origin = loader.get_filename(fullname)
                spec = importlib.machinery.ModuleSpec(fullname, loader, origin=origin, is_package=package)
                spec.has_location = True
                return spec
        if module is not None and any(name.startswith(f"{base}/") for name in module.files):
            spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [f"<lent>/{base}"]
            return spec
        return None


class _Loader(importlib.abc.SourceLoader):
    """Loads one file of a shipped module."""

    def __init__(self, module: ShippedModule, below: str) -> None:
        self._module = module
        self._below = below

    def get_filename(self, fullname: str) -> str:
        """Return the path that stacks show."""
        return self._module.own.get(self._below) or f"<lent>/{self._below}"

    def get_data(self, path: str | bytes) -> bytes:
        """Return the contents of this file, or of one next to it."""
        name = str(path)
        if name == self.get_filename(""):
            return self._module.files[self._below].encode()
        known = {self._module.own.get(below) or f"<lent>/{below}": text for below, text in self._module.files.items()}
        if name not in known:
            raise OSError(f"{name} was not shipped")
        return known[name].encode()
