"""The kinds of the keys of `expect:` that speak of ranks: what must come out of a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from lab.errors import ScenarioError
from lab.spec.expressions import RankVariables, evaluate, is_expression
from lab.spec.kinds import MAX_RANK, NODE, Kind, World, list_of, node, rank, read_scalar, whole_number
from lab.spec.reading import InvalidError, Value

_MOST_RESTARTS = 1000
_TRIED_RANKS = 4
_MORE_NODES = (0, 1, 3, 63)
_RANK_OR_NODE = ({"type": "integer", "minimum": 0}, {"type": "string", "pattern": f"^{NODE}$"})
RANK_SCHEMA = {"type": "object", "propertyNames": {"pattern": "^(0|[1-9][0-9]*)$"}}


def tried(world: World, rank: int | None) -> Sequence[RankVariables]:
    """Variables to try an expression with before the run: those of its rank, or of a few where it is for all."""
    if not world.size or not world.nodes or not world.nproc_per_node:
        return ()
    few = sorted({*range(min(world.size, _TRIED_RANKS)), world.size - 1})
    return [RankVariables.of(one, world.nodes, world.nproc_per_node) for one in (few if rank is None else [rank])]


def _imagined(world: World, rank: int | None) -> Iterator[RankVariables]:
    """Variables of that rank, or of a few, in clusters of several sizes, where the scenario leaves it open."""
    for more in () if world.size else _MORE_NODES:
        nodes = world.nodes or (rank or 0) + 1 + more
        nproc_per_node = world.nproc_per_node or (rank or 0) // nodes + 1 + more
        last = nodes * nproc_per_node - 1
        for one in sorted({0, min(1, last), last}) if rank is None else [rank]:
            if one <= last:
                yield RankVariables.of(one, nodes, nproc_per_node)


def culprit() -> Kind:
    """Who is to be named: a rank, or a node."""
    allowed = "a rank, 0 or more, or a node such as node2"

    def read(value: Value) -> Any:
        if value.kind == "text" and not re.fullmatch(NODE, value.raw):
            raise value.refused(allowed)
        return (node() if value.kind == "text" else rank()).read(value)

    return Kind(allowed, read, {"oneOf": [*_RANK_OR_NODE]})


def restarts() -> Kind:
    """How often a launcher began the workers anew: a number, or who had failed first each time."""
    count, culprit = whole_number(0, _MOST_RESTARTS), "a rank, a node such as node2, or null where nobody did"

    def read_culprit(value: Value) -> Any:
        if value.kind == "nothing":
            return None
        if value.kind == "text" and re.fullmatch(NODE, value.raw):
            return value.raw
        try:
            return whole_number(0, MAX_RANK).read(value)
        except InvalidError:
            raise value.refused(culprit) from None

    item = {"oneOf": [*_RANK_OR_NODE, {"type": "null"}]}
    each = list_of(Kind(culprit, read_culprit, item), "a list of who failed first, such as [1, node2]")
    allowed = f"{count.allowed}, or {each.allowed}"

    def read(value: Value) -> Any:
        if value.kind == "list":
            return each.read(value)
        try:
            return count.read(value)
        except InvalidError:
            raise value.refused(allowed) from None

    def dump(data: int | Sequence[int | str | None]) -> Any:
        return data if isinstance(data, int) else list(data)

    return Kind(allowed, read, {"oneOf": [count.schema, each.schema]}, dump)


def per_rank(item: Kind) -> Kind:
    """A mapping from ranks to anything."""
    allowed = "a mapping whose keys are ranks, such as {0: ...}"

    schema = {**RANK_SCHEMA, "additionalProperties": item.schema}
    read = partial(by_rank, allowed=allowed, read=lambda each, _: item.read(each))
    return Kind(f"{allowed}, to {item.allowed}", read, schema, dict)


def notes() -> Kind:
    """Expected values by the name of the note: plain data, whose strings may be arithmetic."""
    allowed = "a mapping from the names of notes to values"

    def read(value: Value) -> dict[str, Any]:
        found = {}
        for key, item in value.pairs(allowed):
            with value.reading.attempt():
                found[key.as_key()] = _note(item)
        return found

    return Kind(allowed, read, {"type": "object"}, dict)


def by_rank(value: Value, allowed: str, read: Callable[[Value, int], Any]) -> dict[int, Any]:
    """What a mapping from ranks says, with the rank of each value; bad ranks are problems."""
    found = {}
    for key, item in value.pairs(allowed):
        with value.reading.attempt():
            try:
                number = rank().read(key)
            except InvalidError:
                quotes = ", without quotes" if key.kind == "text" else ""
                ranks = World.of(value.reading).allowed
                raise key.problem(f"found {key.describe()} as a key; allowed: {ranks}{quotes}") from None
            found[number] = read(item, number)
    return found


def _note(value: Value) -> Any:
    pairs = value.pairs("") if value.kind == "mapping" else []
    isby_rank = pairs and all(key.kind == "integer" for key, _ in pairs)
    return by_rank(value, "", _plain) if isby_rank else _plain(value, None)


def _plain(value: Value, rank: int | None) -> Any:
    """Plain data; every expression in it has been tried for some of the ranks that it speaks of."""
    if value.kind == "list":
        return [_plain(item, rank) for item in value.items("")]
    if value.kind == "mapping":
        found = {}
        for key, item in value.pairs(""):
            if key.kind == "integer":
                allowed = "text; a mapping per rank stands directly under the name of the note"
                raise key.problem(f"found the number {key.raw} as a key; allowed: {allowed}")
            found[key.as_key()] = _plain(item, rank)
        return found
    data = read_scalar(value)
    if isinstance(data, str):
        try:
            if is_expression(data):
                _try(data, World.of(value.reading), rank)
        except ScenarioError as error:
            raise value.problem(error.message) from None
    return data


def _try(expression: str, world: World, rank: int | None) -> None:
    """Refuse what cannot be computed on ranks that there will be, or, where those are not known, on none imaginable."""
    for variables in tried(world, rank):
        evaluate(expression, variables)
    first: ScenarioError | None = None
    for variables in _imagined(world, rank):
        try:
            evaluate(expression, variables)
            return
        except ScenarioError as error:
            first = first or error
    if first is not None:
        raise first
