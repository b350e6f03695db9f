"""Putting functions of the recorder in the place of PyTorch's, as soon as their module has been imported."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from .journal import journal

Action = Callable[[ModuleType], None]
Function = Callable[..., Any]
_USERS = ("torch.distributed", "torch.distributed.device_mesh")
_UNSEEN = os.path.join(os.path.dirname(__file__), "importlib_bootstrap.py")


class _Finder(importlib.abc.MetaPathFinder):
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


finder = _Finder()
"""That of this process."""


def when_imported(name: str, action: Action) -> None:
    """Call `action` with a module: at once if it is imported, else right after its first import."""
    module = sys.modules.get(name)
    if module is not None:
        action(module)
        return
    finder.actions.setdefault(name, []).append(action)
    if finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)


def patch_module(name: str, action: Action) -> None:
    """Change a module of PyTorch once it is imported; what goes wrong then ends the recording, and not the script."""

    def attempt(module: ModuleType) -> None:
        try:
            action(module)
        except Exception as error:  # something in it is not as in those that the recorder was written for
            journal.cut(f"{name} cannot be recorded: {type(error).__name__}: {error}")

    when_imported(name, attempt)


def wraps_function(function: Function) -> Callable[[Function], Function]:
    """Make a function of the recorder look like the one that it wraps, and warnings pass over it.

    They point at the line of the script, then: Python counts the frames of its own import system out, which it knows
    by two words in the name of their file.
    """

    def decorate(wrapper: Any) -> Function:
        functools.wraps(function)(wrapper)
        wrapper.__code__ = wrapper.__code__.replace(co_filename=_UNSEEN)
        return wrapper  # type: ignore[no-any-return]

    return decorate


def call_before(action: Function) -> Callable[[Function], Function]:
    """Have `action` called with the same arguments before each call of a function."""

    def make(function: Function) -> Function:
        @wraps_function(function)
        def wrapper(*arguments: Any, **named: Any) -> Any:
            action(*arguments, **named)
            return function(*arguments, **named)

        return wrapper

    return make


def inline_for_compile(wrapper: Function, function: Function) -> Function:
    """Have torch.compile put what `function` does in the place of `wrapper`.

    Other marked functions end a graph and are called as they are. Nearly all of them end one without the recorder, too;
    and where one does, torch 2.13 loses the `self` of a method that has this.
    """
    wrapper._torchdynamo_inline = function  # type: ignore[attr-defined]
    return wrapper


def do_nothing(*_: Any) -> None:
    """What a hook of the recorder is to torch.compile."""


def replace_function(module: ModuleType, name: str, make: Callable[[Function], Function]) -> None:
    """Put another function in the place of one of a module, also where torch.distributed has it by this name."""
    old = getattr(module, name, None)
    if old is not None:
        new = make(old)
        for user in (module, *map(sys.modules.get, _USERS)):
            if getattr(user, name, None) is old:
                setattr(user, name, new)


def replace_methods(kind: Any, names: Iterable[str], make: Callable[[Function], Function]) -> None:
    """Put other methods in the place of those of a class that this version of PyTorch has."""
    for name in names:
        if hasattr(kind, name):
            setattr(kind, name, make(getattr(kind, name)))
