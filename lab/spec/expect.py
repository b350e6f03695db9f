"""The kinds of the keys of `expect:` that speak of ranks: what must come out of a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from lab.errors import ScenarioError
from lab.spec.expressions import RankVariables, evaluate, is_expression
from lab.spec.kinds import Kind, boolean, list_of, read_text, whole_number
from lab.spec.problems import InvalidError, Reading, did_you_mean
from lab.spec.value import NUMBER, Value

MAX_RANK = 1024 * 1024 - 1
"""Highest rank of the largest cluster that a scenario may ask for."""
SNAPSHOT = "snapshot"
"""What `calls` says where they are in a file beside the scenario."""
_NODE = "node(0|[1-9][0-9]*)"
_MOST_RESTARTS = 1000
_TRIED_RANKS = 4
_MORE_NODES = (0, 1, 3, 63)
_LONGEST_INTEGER = 1000
_RANK_SCHEMA = {"type": "object", "propertyNames": {"pattern": "^(0|[1-9][0-9]*)$"}}


class World(NamedTuple):
    """What is known about the ranks of a run when its scenario is loaded."""

    nodes: int | None
    """None: whatever the cluster has."""
    nproc_per_node: int | None
    """None: whatever the cluster says."""

    @classmethod
    def of(cls, reading: Reading) -> World:
        """What a scenario says, whose expectations are being read."""
        return cls(reading.known.get("nodes"), reading.known.get("nproc_per_node"))

    @property
    def size(self) -> int | None:
        """Ranks of the run; None where the cluster decides."""
        return self.nodes * self.nproc_per_node if self.nodes and self.nproc_per_node else None

    @property
    def allowed(self) -> str:
        """The ranks that a scenario may name, for a person."""
        if self.size is None:
            return "a rank, 0 or more"
        return f"a rank from 0 to {self.size - 1} ({self.nodes} x {self.nproc_per_node} ranks)"

    def tried(self, rank: int | None) -> Sequence[RankVariables]:
        """Variables to try an expression with before the run: those of its rank, or of a few where it is for all."""
        if not self.size or not self.nodes or not self.nproc_per_node:
            return ()
        few = sorted({*range(min(self.size, _TRIED_RANKS)), self.size - 1})
        return [RankVariables.of(one, self.nodes, self.nproc_per_node) for one in (few if rank is None else [rank])]

    def imagined(self, rank: int | None) -> Iterator[RankVariables]:
        """Variables of that rank, or of a few, in clusters of several sizes, where the scenario leaves it open."""
        for more in () if self.size else _MORE_NODES:
            nodes = self.nodes or (rank or 0) + 1 + more
            nproc_per_node = self.nproc_per_node or (rank or 0) // nodes + 1 + more
            last = nodes * nproc_per_node - 1
            for one in sorted({0, min(1, last), last}) if rank is None else [rank]:
                if one <= last:
                    yield RankVariables.of(one, nodes, nproc_per_node)


def rank() -> Kind:
    """A rank of the run."""

    def read(value: Value) -> Any:
        world = World.of(value.reading)
        try:
            return whole_number(0, (world.size or MAX_RANK + 1) - 1).read(value)
        except InvalidError:
            raise value.refused(world.allowed) from None

    return Kind("a rank, 0 or more", read, {"type": "integer", "minimum": 0})


def restarts() -> Kind:
    """How often a launcher began the workers anew: a number, or who had failed first each time."""
    count, culprit = whole_number(0, _MOST_RESTARTS), "a rank, a node such as node2, or null where nobody did"

    def read_culprit(value: Value) -> Any:
        if value.kind == "nothing":
            return None
        if value.kind == "text" and re.fullmatch(_NODE, value.raw):
            return value.raw
        try:
            return whole_number(0, MAX_RANK).read(value)
        except InvalidError:
            raise value.refused(culprit) from None

    item = {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": f"^{_NODE}$"}, {"type": "null"}]}
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

    schema = {**_RANK_SCHEMA, "additionalProperties": item.schema}
    read = partial(_per_rank, allowed=allowed, read=lambda each, _: item.read(each))
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


def calls() -> Kind:
    """What each rank must have called: a list for all, or one for each that a mapping names."""
    allowed = f"a list of calls, such as [all_gather, broadcast from 0], one for each rank, or {SNAPSHOT}"
    items = {"type": "array", "items": {"type": "string", "minLength": 1}}

    def read_list(value: Value, rank: int | None = None) -> Any:
        return list_of(Kind("", lambda item: _call(item, rank), {}), allowed).read(value)

    def read(value: Value) -> Any:
        if value.kind == "text" and value.raw == SNAPSHOT:
            return SNAPSHOT
        if value.kind == "text":
            raise value.refused(allowed, did_you_mean(value.raw, [SNAPSHOT]))
        return _per_rank(value, allowed, read_list) if value.kind == "mapping" else read_list(value)

    def dump(data: Sequence[str] | Mapping[int, Sequence[str]]) -> Any:
        if data == SNAPSHOT:
            return data
        return {rank: list(one) for rank, one in data.items()} if isinstance(data, Mapping) else list(data)

    return Kind(
        allowed, read, {"oneOf": [{"const": SNAPSHOT}, items, {**_RANK_SCHEMA, "additionalProperties": items}]}, dump
    )


def _per_rank(value: Value, allowed: str, read: Callable[[Value, int], Any]) -> dict[int, Any]:
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
    is_per_rank = pairs and all(key.kind == "integer" for key, _ in pairs)
    return _per_rank(value, "", _plain) if is_per_rank else _plain(value, None)


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
    data = scalar(value)
    if isinstance(data, str):
        try:
            if is_expression(data):
                _try(data, World.of(value.reading), rank)
        except ScenarioError as error:
            raise value.problem(error.message) from None
    return data


def _try(expression: str, world: World, rank: int | None) -> None:
    """Refuse what cannot be computed on ranks that there will be, or, where those are not known, on none imaginable."""
    for variables in world.tried(rank):
        evaluate(expression, variables)
    first: ScenarioError | None = None
    for variables in world.imagined(rank):
        try:
            evaluate(expression, variables)
            return
        except ScenarioError as error:
            first = first or error
    if first is not None:
        raise first


def scalar(value: Value) -> Any:
    """What a scalar stands for: None, bool, int, float or str."""
    if value.kind == "nothing":
        return None
    if value.kind == "boolean":
        return boolean().read(value)
    if value.kind == "integer":
        if not re.fullmatch("[+-]?(?:0|[1-9][0-9]*)", value.raw) or len(value.raw) > _LONGEST_INTEGER:
            raise value.refused("a decimal number without leading zeros, or text in quotes")
        return int(value.raw)
    if value.kind == "number":
        word = value.raw.lower()
        if word not in (".nan", ".inf", "+.inf", "-.inf") and not re.fullmatch(NUMBER, word):
            raise value.refused("a decimal number, or text in quotes")
        return float(word.replace(".nan", "nan").replace(".inf", "inf"))
    return read_text(value, "text")


def _call(value: Value, rank: int | None) -> str:
    from lab.spec.calls import parse_calls  # few scenarios state calls

    text = read_text(value, "a call, such as all_reduce SUM float32[45]", quotable=False)
    try:
        for variables in (None, *World.of(value.reading).tried(rank)):
            parse_calls(text, variables)
    except ScenarioError as error:
        raise value.problem(error.message) from None
    return text
