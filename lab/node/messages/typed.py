"""Plain data, as JSON gives it, read as typed values by the annotations of a NamedTuple or dataclass."""

from __future__ import annotations

import base64
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Reader = Callable[[Any, bool], Any]
"""Takes a value and whether to be lenient; raises Misfit."""

_UNIONS = (typing.Union, getattr(types, "UnionType", typing.Union))
_LARGEST_INT = 1 << 63
"""Whole numbers from here on are damage: nothing that is counted or measured is as large."""
_fields_of: dict[type, list[tuple[str, Any, Reader, bool]]] = {}
"""By class: name, the type whose values need no reader, reader, and whether there is a default.

Only what is read is looked at, since that takes 0.1 ms.
"""


class Misfit(ValueError):
    """A value is not what it has to be; the message says where and why."""


def read(kind: type[T], data: Any, *, lenient: bool = False) -> T:
    """Plain data as a NamedTuple or dataclass; unknown fields are skipped.

    Where `lenient`, a field's default takes the place of what does not fit, and items of lists and mappings that do
    not fit are left out.

    Raises:
        Misfit: something is missing or of another type.
    """
    if not isinstance(data, dict):
        raise Misfit(f"{_shown(data)} is not a mapping")
    found = {}
    for name, exact, reader, has_default in _fields(kind):
        if name in data:
            value = data[name]
            if type(value) is exact and (exact not in (int, float) or _is_number(value)):
                found[name] = value
                continue
            try:
                found[name] = reader(value, lenient)
            except Misfit as error:
                if not (lenient and has_default):
                    raise Misfit(f"{name}: {error}") from None
        elif not has_default:
            raise Misfit(f"{name} is missing")
    return kind(**found)


def _fields(kind: type) -> list[tuple[str, Any, Reader, bool]]:
    known = _fields_of.get(kind)
    if known is None:
        hints = typing.get_type_hints(kind)
        if is_dataclass(kind):
            optional = {f.name: (f.default, f.default_factory) != (MISSING, MISSING) for f in fields(kind)}
        else:
            optional = {name: name in kind._field_defaults for name in kind._fields}  # type: ignore[attr-defined]
        known = _fields_of[kind] = [
            (name, hints[name] if hints[name] in (bool, int, str, float) else None, _reader(hints[name]), has_default)
            for name, has_default in optional.items()
        ]
    return known


def _reader(hint: Any) -> Reader:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return _as_it_is
    if origin in _UNIONS:
        return _either([_reader(one) for one in arguments])
    if origin is typing.Literal:
        return _simple(lambda value: value in arguments, f"one of {', '.join(map(str, arguments))}")
    if origin in (list, tuple):
        return _items(origin, _reader(arguments[0]))
    if origin in (dict, Mapping):
        return _mapping(_reader(arguments[1]))
    if hint in _SIMPLE:
        return _SIMPLE[hint]

    def reader(value: Any, lenient: bool) -> Any:
        return read(hint, value, lenient=lenient)

    return reader


def _as_it_is(value: Any, lenient: bool) -> Any:
    return value


def _simple(fits: Callable[[Any], bool], words: str, convert: Callable[[Any], Any] = lambda value: value) -> Reader:
    def reader(value: Any, lenient: bool) -> Any:
        if not fits(value):
            raise Misfit(f"{_shown(value)} is not {words}")
        return convert(value)

    return reader


def _either(readers: list[Reader]) -> Reader:
    def reader(value: Any, lenient: bool) -> Any:
        misfits = []
        for one in readers:
            try:
                return one(value, lenient)
            except Misfit as error:
                misfits.append(str(error))
        raise Misfit(misfits[0])

    return reader


def _items(make: type, item: Reader) -> Reader:
    def reader(value: Any, lenient: bool) -> Any:
        if not isinstance(value, list):
            raise Misfit(f"{_shown(value)} is not a list")
        found = []
        for number, one in enumerate(value):
            try:
                found.append(item(one, lenient))
            except Misfit as error:
                if not lenient:
                    raise Misfit(f"item {number}: {error}") from None
        return make(found)

    return reader


def _mapping(item: Reader) -> Reader:
    def reader(value: Any, lenient: bool) -> Any:
        if not isinstance(value, dict):
            raise Misfit(f"{_shown(value)} is not a mapping")
        found = {}
        for key, one in value.items():
            try:
                found[key] = item(one, lenient)
            except Misfit as error:
                if not lenient:
                    raise Misfit(f"{key}: {error}") from None
        return found

    return reader


def _read_bytes(value: Any, lenient: bool) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if not (isinstance(value, dict) and isinstance(value.get("b64"), str)):
        raise Misfit(f"{_shown(value)} is neither text nor base64")
    try:
        return base64.b64decode(value["b64"], validate=True)
    except ValueError as error:
        raise Misfit(f"{_shown(value)}: {error}") from None


def write_bytes(data: bytes) -> Any:
    """Bytes as plain data that a field of type `bytes` is read from: text where they are UTF-8, else base64."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(data).decode("ascii")}


def _is_number(value: Any) -> bool:
    return abs(value) < _LARGEST_INT if type(value) is int else type(value) is float and math.isfinite(value)


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except RecursionError:
        text = f"a {type(value).__name__} nested too deep"
    return text if len(text) <= 60 else f"{text[:59]}…"


_SIMPLE: dict[Any, Reader] = {
    bool: _simple(lambda value: isinstance(value, bool), "true or false"),
    int: _simple(lambda value: type(value) is int and _is_number(value), "a whole number"),
    float: _simple(_is_number, "a number"),
    str: _simple(lambda value: isinstance(value, str), "text"),
    type(None): _simple(lambda value: value is None, "null"),
    Path: _simple(lambda value: isinstance(value, str), "a path", Path),
    bytes: _read_bytes,
}
