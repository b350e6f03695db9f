"""The key `calls` of `expect`: what each rank must have called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lab.errors import ScenarioError
from lab.features.calls.pattern import parse_calls
from lab.frozen import dataclass
from lab.spec.declare import key, said_of
from lab.spec.expect import RANK_SCHEMA, by_rank, tried
from lab.spec.kinds import Kind, World, list_of, read_text
from lab.spec.reading import Value, did_you_mean
from lab.spec.scenario import Expect

SNAPSHOT = "snapshot"
"""What the key says where they are in a file beside the scenario."""
Stated = str | Sequence[str] | Mapping[int, Sequence[str]]
"""Of all ranks or of each that is named; or `SNAPSHOT`."""


def _calls() -> Kind:
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
        return by_rank(value, allowed, read_list) if value.kind == "mapping" else read_list(value)

    def dump(data: Sequence[str] | Mapping[int, Sequence[str]]) -> Any:
        if data == SNAPSHOT:
            return data
        return {rank: list(one) for rank, one in data.items()} if isinstance(data, Mapping) else list(data)

    return Kind(
        allowed, read, {"oneOf": [{"const": SNAPSHOT}, items, {**RANK_SCHEMA, "additionalProperties": items}]}, dump
    )


def _call(value: Value, rank: int | None) -> str:
    text = read_text(value, "a call, such as all_reduce SUM float32[45]", quotable=False)
    try:
        for variables in (None, *tried(World.of(value.reading), rank)):
            parse_calls(text, variables)
    except ScenarioError as error:
        raise value.problem(error.message) from None
    return text


@dataclass(frozen=True, kw_only=True)
class CallsKeys:
    """What scenarios say of the calls of ranks."""

    calls: Stated | None = key(None, _calls(), "calls: ['all_gather int64[1]', ..., barrier]", "not checked")
    """What each rank must have called, in order; see Expected calls. `snapshot`: what is in a file beside this one,
    which the first run writes; see snapshots."""


def calls_of(expect: Expect) -> Stated | None:
    """What is expected to be called; None: nothing is said of it."""
    return said_of(expect, CallsKeys).calls
