"""Classes for what ranks raised: of RanksFailed, and of the class that it was of there, so that both catch it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from lab.errors import RanksFailed

Classes = Mapping[tuple[str, str], "type | None"]
"""Those that were sent by value, by module and name; None: there are two."""
_MADE_IN_PYTHON = 1 << 9
"""The flag of classes that are not part of the interpreter."""
_SHADOWED = ("message", "hint", "ranks", "record", "shown_inside")
"""Attributes of RanksFailed, which may be read-only properties of the other class."""
_OF_SYSTEM = re.compile(r"\[Errno (\d+)\] (.*?)(?:: ('.*'|\".*\"))?", re.DOTALL)


def known_exception(module: str, name: str, classes: Classes | None = None) -> type[BaseException] | None:
    """A class of exceptions that was sent, or is imported here already; None where there is none.

    Args:
        module: where it is.
        name: its qualified name.
        classes: those that were sent.
    """
    found: Any = (classes or {}).get((module, name))
    if found is None:
        found = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, "__dict__", {}).get(part)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def caught_as(kind: type[BaseException] | None) -> type[RanksFailed]:
    """RanksFailed that is also caught as another exception; RanksFailed itself where nothing can be both.

    Nothing of the other class is called to make an object of it: nobody can say with what.
    """
    if kind is None or not issubclass(kind, Exception):
        return RanksFailed
    native = _native(kind)

    def new(cls: type[RanksFailed], *_: Any, **__: Any) -> Any:
        return native.__new__(cls)

    def text(self: RanksFailed) -> str:
        return self.message

    own: dict[str, Any] = dict.fromkeys(_SHADOWED)
    own |= {"__new__": new, "__str__": text, "__setattr__": Exception.__setattr__}
    own |= {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    try:
        both = type(kind.__name__, (RanksFailed, kind), own)
        both("")
    except Exception:  # noqa: BLE001 - it is laid out otherwise, or refuses in its own way to be inherited from
        return RanksFailed
    return both


def fill_in(error: RanksFailed, text: str) -> None:
    """Give an exception what those of Python say besides their text, as far as the text tells it."""
    with suppress(Exception):
        _native(type(error)).__init__(error, error.message)  # some are shown by what they take here
    found = _OF_SYSTEM.fullmatch(text) if isinstance(error, OSError) else None
    if found is not None and isinstance(error, OSError):
        number, error.strerror, file = found.groups()
        error.errno = int(number)
        with suppress(ValueError, SyntaxError):
            error.filename = ast.literal_eval(file) if file else None


def _native(kind: type[BaseException]) -> Any:
    """The class of the interpreter that one is made from."""
    return next(base for base in kind.__mro__ if not base.__flags__ & _MADE_IN_PYTHON)
