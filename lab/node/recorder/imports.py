"""Doing something to a module as soon as it has been imported, without importing it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Action = Callable[[ModuleType], None]


class _Watch(importlib.abc.MetaPathFinder):
    """Finds modules as ever, and sees to it that the actions for them follow their execution."""

    def __init__(self) -> None:
        self.actions: dict[str, list[Action]] = {}

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        actions = self.actions.pop(name, None)
        if actions is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_then_act(module: ModuleType) -> None:
            execute(module)
            for action in actions:
                action(module)

        spec.loader.exec_module = execute_then_act  # type: ignore[method-assign]
        return spec


watch = _Watch()
"""That of this process."""


def when_imported(name: str, action: Action) -> None:
    """Call `action` with a module: at once if it is imported, else right after its first import."""
    module = sys.modules.get(name)
    if module is not None:
        action(module)
        return
    watch.actions.setdefault(name, []).append(action)
    if watch not in sys.meta_path:
        sys.meta_path.insert(0, watch)
