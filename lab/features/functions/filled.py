"""Calls of functions some of whose parameters each rank fills in: what is given by position means the others."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any

FILLED = ("rank", "world_size", "group")
"""Parameters that each rank fills in: its number, how many there are, the process group of all of them."""
_REST = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def to_fill(signature: inspect.Signature) -> tuple[str, ...]:
    """Parameters that ranks fill in, unless the caller names them."""
    needed = [one for one in signature.parameters.values() if one.default is one.empty and one.kind not in _REST]
    return tuple(one.name for one in needed if one.name in FILLED)


def without(signature: inspect.Signature, filled: Sequence[str]) -> inspect.Signature:
    """What is left for the caller to give."""
    return signature.replace(parameters=[one for name, one in signature.parameters.items() if name not in filled])


def around_filled(
    function: Callable[..., Any],
    signature: inspect.Signature,
    filled: Sequence[str],
    arguments: tuple[Any, ...],
    named: Mapping[str, Any],
) -> tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]:
    """A function with its arguments, such that the filled ones can be added by name.

    Args:
        function: what is called.
        signature: its own.
        filled: parameters that each rank fills in, or the caller by name.
        arguments: given by position.
        named: given by name.

    Raises:
        TypeError: those are not what it takes.
    """
    try:
        others = {name: value for name, value in named.items() if name not in filled}
        without(signature, filled).bind(*arguments, **others)
    except TypeError as error:
        raise TypeError(f"{function.__name__}(): {error}") from None
    by_position = [one for one in signature.parameters.values() if one.kind in _BY_POSITION]
    places = [(place, one.name) for place, one in enumerate(by_position) if one.name in filled]
    first = places[0][0] if places else len(arguments)
    if not any(by_position[place].kind is Parameter.POSITIONAL_ONLY for place, _ in places):
        behind = [one.name for one in by_position[first:] if one.name not in filled]
        if len(arguments) <= first + len(behind):
            by_name = dict(zip(behind, arguments[first:], strict=False))
            return function, arguments[:first], {**named, **by_name}

    @functools.wraps(function)
    def placed(*values: Any, **others: Any) -> Any:
        __tracebackhide__ = True
        whole = list(values)
        for place, name in places:
            if place <= len(whole):  # else what stands before it is given by name, and it can be too
                whole.insert(place, others.pop(name))
        return function(*whole, **others)

    return placed, arguments, named
