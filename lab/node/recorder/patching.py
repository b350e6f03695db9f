"""Replace functions of PyTorch with the recorder's, as soon as Python has imported their module."""

from __future__ import annotations

import functools
import importlib.machinery
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType, TracebackType
from typing import Any

from .journal import OWN_CODE, journal

Action = Callable[[ModuleType], None]
Function = Callable[..., Any]
_USERS = ("torch.distributed", "torch.distributed.device_mesh")
_UNSEEN = os.path.join(os.path.dirname(__file__), "importlib_bootstrap", "")


class Unseen:
    """Removes the frame of a `with` from the traceback of an error that passes; has no effect before Python 3.11."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None and trace is not None:
            error.__traceback__ = trace.tb_next


unseen = Unseen()
"""For wrappers: with it, an error of the wrapped function looks the same as without the recorder."""


def hide_wrappers(module: Any) -> None:
    """Make Python's `traceback` leave out the recorder's frames, where `unseen` has no effect."""
    walk = module.walk_tb
    module.walk_tb = lambda trace: (one for one in walk(trace) if not one[0].f_code.co_filename.startswith(OWN_CODE))


class _Finder:
    """Find modules as usual, and run the actions of a module right after its import."""

    def __init__(self) -> None:
        self.actions: dict[str, list[Action]] = {}

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if (actions := self.actions.pop(name, None)) is None:
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
"""The finder of this process."""


def when_imported(name: str, action: Action) -> None:
    """Call `action` with a module: immediately if it is imported, else right after its first import."""
    if (module := sys.modules.get(name)) is not None:
        action(module)
        return
    finder.actions.setdefault(name, []).append(action)
    if finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)


def patch_module(name: str, action: Action) -> None:
    """Change a module of PyTorch once it is imported; an error in the change ends the recording, not the script."""

    def attempt(module: ModuleType) -> None:
        try:
            action(module)
        except Exception as error:  # this version of the module differs from those that the recorder supports
            journal.cut(f"the recorder cannot patch {name}: {type(error).__name__}: {error}")

    when_imported(name, attempt)


def wraps_function(function: Function) -> Callable[[Function], Function]:
    """Make a wrapper look like the function that it wraps, and make warnings skip the wrapper's frame.

    Warnings then point at the line of the script. Python skips the frames of its import system, which it recognizes by
    the words `importlib` and `_bootstrap` in the name of their file. Each module has a name of its own: tracebacks take
    all source lines of one name from the same module.
    """

    def decorate(wrapper: Any) -> Function:
        return functools.wraps(function)(_hide_from_warnings(wrapper))

    return decorate


def _hide_from_warnings(wrapper: Any) -> Function:
    # like a path of the lab, which it leaves out of stacks
    wrapper.__code__ = wrapper.__code__.replace(co_filename=f"{_UNSEEN}{wrapper.__module__.replace('.', '/')}.py")
    return wrapper  # type: ignore[no-any-return]


def call_before(action: Function) -> Callable[[Function], Function]:
    """Return a decorator that calls `action` with the same arguments before each call of a function."""

    def make(function: Function) -> Function:
        @wraps_function(function)
        def wrapper(*arguments: Any, **named: Any) -> Any:
            action(*arguments, **named)
            with unseen:
                return function(*arguments, **named)

        return wrapper

    return make


def call_instead(replacement: Function) -> Callable[[Function], Function]:
    """Return a decorator that calls `replacement` in place of a function, with the function and then its arguments."""
    _hide_from_warnings(replacement)

    def make(function: Function) -> Function:
        @wraps_function(function)
        def wrapper(*arguments: Any, **named: Any) -> Any:
            return replacement(function, *arguments, **named)

        return wrapper

    return make


def call_after_making(action: Callable[[Any], object]) -> Callable[[Function], Function]:
    """Return a decorator that calls `action` with each object that a constructor has made."""

    def decorate(construct: Function) -> Function:
        @wraps_function(construct)
        def __init__(one: Any, *arguments: Any, **named: Any) -> None:  # noqa: N807 - PyTorch's name
            construct(one, *arguments, **named)
            action(one)

        return __init__

    return decorate


def inline_for_compile(wrapper: Function, function: Function) -> Function:
    """Make torch.compile inline `function` in place of `wrapper`.

    Other wrapped functions break a graph, and nearly all of them also do without the recorder. Do not use this for
    methods that break a graph: torch 2.13 then loses their `self`.
    """
    wrapper._torchdynamo_inline = function  # type: ignore[attr-defined]
    return wrapper


def do_nothing(*_: Any) -> None:
    """Do nothing: torch.compile sees this in place of a hook of the recorder."""


def replace_function(module: ModuleType, name: str, make: Callable[[Function], Function]) -> None:
    """Replace a function of a module, also where torch.distributed exports it under the same name."""
    if (old := getattr(module, name, None)) is not None:
        new = make(old)
        for user in (module, *map(sys.modules.get, _USERS)):
            if getattr(user, name, None) is old:
                setattr(user, name, new)


def replace_methods(kind: Any, names: Iterable[str], make: Callable[[Function], Function]) -> None:
    """Replace those methods of a class that this version of PyTorch has."""
    for name in names:
        if hasattr(kind, name):
            setattr(kind, name, make(getattr(kind, name)))
