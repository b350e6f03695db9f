"""Read plain data, as JSON has it, as typed values by the annotations of a NamedTuple or dataclass."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_UNIONS = (typing.Union, getattr(types, "UnionType", typing.Union))
_LARGEST_INT = 1 << 63
"""Larger integers are damage: no count or measurement is as large."""


class Misfit(ValueError):
    """A value has the wrong type; the message says where and why."""


def read_typed(kind: type[T], data: Any, *, lenient: bool = False) -> T:
    """Read plain data as a NamedTuple or dataclass; skip unknown fields.

    Where `lenient`, a default replaces a field that does not fit, and items of lists and mappings that do not fit are
    left out.

    Raises:
        Misfit: something is missing or has the wrong type.
    """
    if not isinstance(data, dict):
        raise Misfit(f"{_shown(data)} is not a mapping")
    values = {}
    for name, (key, hint, has_default) in _fields(kind).items():  # type: ignore[arg-type]
        if key in data:
            value = data[key]
            if type(value) is hint and (hint not in (int, float) or _is_number(value)):  # the usual case, and fast
                values[name] = value
                continue
            try:
                values[name] = _convert(value, hint, lenient)
            except Misfit as error:
                if not (lenient and has_default):
                    raise Misfit(f"{key}: {error}") from None
        elif not has_default:
            raise Misfit(f"{key} is missing")
    return kind(**values)


@cache
def _fields(kind: Any) -> dict[str, tuple[str, Any, bool]]:
    """Return the key, the annotation, and whether it has a default, by the name of each field of a class."""
    hints, keys = typing.get_type_hints(kind), getattr(kind, "_keys", {})
    if is_dataclass(kind):
        defaults = {f.name: (f.default, f.default_factory) != (MISSING, MISSING) for f in fields(kind)}
        return {name: (name, hints[name], has_default) for name, has_default in defaults.items()}
    return {name: (keys.get(name, name), hints[name], name in kind._field_defaults) for name in kind._fields}


def _convert(value: Any, hint: Any, lenient: bool) -> Any:
    """Convert a value to the type of an annotation."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if hint in _SIMPLE:
        fits, words = _SIMPLE[hint]
        if not fits(value):
            raise Misfit(f"{_shown(value)} is not {words}")
        return Path(value) if hint is Path else value
    if origin in _UNIONS:
        misfits = []
        for one in arguments:
            try:
                return _convert(value, one, lenient)
            except Misfit as error:
                misfits.append(error)
        raise misfits[0]
    if origin is typing.Literal:
        if value not in arguments:
            raise Misfit(f"{_shown(value)} is not one of {', '.join(map(str, arguments))}")
        return value
    if origin in (list, tuple):
        if not isinstance(value, list):
            raise Misfit(f"{_shown(value)} is not a list")
        numbered = {f"item {number}": item for number, item in enumerate(value)}
        return origin(_convert_items(numbered, arguments[0], lenient).values())
    if origin in (dict, Mapping):
        if not isinstance(value, dict):
            raise Misfit(f"{_shown(value)} is not a mapping")
        return _convert_items(value, arguments[1], lenient)
    if issubclass(hint, dict):
        return hint(_convert(value, dict[str, Any], lenient))
    return read_typed(hint, value, lenient=lenient)


def _convert_items(items: Mapping[str, Any], hint: Any, lenient: bool) -> dict[str, Any]:
    converted = {}
    for key, item in items.items():
        try:
            converted[key] = _convert(item, hint, lenient)
        except Misfit as error:
            if not lenient:
                raise Misfit(f"{key}: {error}") from None
    return converted


def _is_number(value: Any) -> bool:
    return abs(value) < _LARGEST_INT if type(value) is int else type(value) is float and math.isfinite(value)


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except RecursionError:
        text = f"a {type(value).__name__} nested too deep"
    return text if len(text) <= 60 else f"{text[:59]}…"


_SIMPLE: dict[Any, tuple[Callable[[Any], bool], str]] = {
    bool: (lambda value: isinstance(value, bool), "true or false"),
    bytes: (lambda value: isinstance(value, bytes), "bytes"),
    int: (lambda value: type(value) is int and _is_number(value), "a whole number"),
    float: (_is_number, "a number"),
    str: (lambda value: isinstance(value, str), "text"),
    type(None): (lambda value: value is None, "null"),
    Path: (lambda value: isinstance(value, str), "a path"),
}
