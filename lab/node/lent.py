"""Modules that a node lacks and a caller has: asked for when they are imported, and kept in memory."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import NamedTuple


class Lent(NamedTuple):
    """From the caller: a module with all that is below it."""

    name: str
    files: dict[str, str]
    """Text by path below the folder that the module is in; none: it is not lent."""
    own: dict[str, str]
    """Of those that are the caller's own code: where stacks say that it is. Others are in no place."""


class Lender(importlib.abc.MetaPathFinder):
    """Finds modules that nothing else finds.

    Args:
        ask: asks the caller for one by its name, which has no dot; None where that cannot be done now.
    """

    def __init__(self, ask: Callable[[str], Lent | None]) -> None:
        self._ask = ask
        self._lent: dict[str, Lent | None] = {}

    def keep(self, lent: Lent) -> None:
        """Have a module that the caller sent without being asked."""
        self._lent[lent.name] = lent

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Where a module is, if the caller has it."""
        top = fullname.partition(".")[0]
        if top not in self._lent:
            if "." in fullname:
                return None  # part of something that the node has
            self._lent[top] = self._ask(top)
        lent, base = self._lent[top], fullname.replace(".", "/")
        for below, package in ((f"{base}/__init__.py", True), (f"{base}.py", False)):
            if lent is not None and below in lent.files:
                loader = _Loader(lent, below)
                origin = loader.get_filename(fullname)
                spec = importlib.machinery.ModuleSpec(fullname, loader, origin=origin, is_package=package)
                spec.has_location = True
                return spec
        if lent is not None and any(name.startswith(f"{base}/") for name in lent.files):
            spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [f"<lent>/{base}"]
            return spec
        return None


class _Loader(importlib.abc.SourceLoader):
    """Loads one file of what was lent."""

    def __init__(self, lent: Lent, below: str) -> None:
        self._lent = lent
        self._below = below

    def get_filename(self, fullname: str) -> str:
        """Where stacks say that its code is."""
        return self._lent.own.get(self._below) or f"<lent>/{self._below}"

    def get_data(self, path: str | bytes) -> bytes:
        """A file beside it, or itself."""
        name = str(path)
        if name == self.get_filename(""):
            return self._lent.files[self._below].encode()
        known = {self._lent.own.get(below) or f"<lent>/{below}": text for below, text in self._lent.files.items()}
        if name not in known:
            raise OSError(f"{name} was not lent")
        return known[name].encode()
