"""The kinds of faults; a new one is a class with an example in one of these modules."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from lab.features.faults.kind import FaultKind, key_of


@cache
def fault_kinds() -> dict[str, type[FaultKind]]:
    """Every kind, by its key: the classes in the modules here that have an example of their own."""
    modules = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    classes = [one for module in modules for one in vars(module).values() if "example" in getattr(one, "__dict__", ())]
    return {key_of(one): one for one in sorted(classes, key=key_of)}
