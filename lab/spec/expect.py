"""The `expect:` section: what must come out of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from yaml.nodes import MappingNode, Node, SequenceNode

from lab.errors import ScenarioError
from lab.spec.calls import parse_calls
from lab.spec.document import position_of
from lab.spec.expressions import RankVariables, evaluate, is_expression
from lab.spec.paths import check_reference
from lab.spec.problems import InvalidError, Problems
from lab.spec.scenario import Expect, Verdict
from lab.spec.section import EXPECT_KEYS, TOLERANCE_KEYS, Section, pairs, text_key
from lab.spec.values import choice, describe, items, kind_of, number, pattern, refused, scalar, text, whole_number

VERDICTS: tuple[str, ...] = get_args(Verdict)
MAX_RANK = 1024 * 1024 - 1
"""Highest rank of the largest cluster that a scenario may ask for."""
_TRIED_RANKS = 4

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class World:
    """What is known about the ranks of a run when its scenario is loaded."""

    nodes: int | None
    """None: whatever the cluster has."""
    nproc_per_node: int | None
    """None: whatever the cluster says."""

    @property
    def size(self) -> int | None:
        """Ranks of the run; None where the cluster decides."""
        return self.nodes * self.nproc_per_node if self.nodes and self.nproc_per_node else None

    @property
    def tried_ranks(self) -> tuple[RankVariables, ...]:
        """A few ranks for which expressions are tried before the run; none where their number is not known."""
        if self.size is None:
            return ()
        ranks = sorted({*range(min(self.size, _TRIED_RANKS)), self.size - 1})
        return tuple(variables for rank in ranks for variables in self.variables(rank))

    def variables(self, rank: int) -> tuple[RankVariables, ...]:
        """The variables of one rank; nothing where the number of ranks is not known."""
        if not self.nodes or not self.nproc_per_node:
            return ()
        return (RankVariables.of(rank, self.nodes, self.nproc_per_node),)

    @property
    def allowed_ranks(self) -> str:
        """The ranks that a scenario may name, for a person."""
        if self.size is None:
            return "a rank, 0 or more"
        return f"a rank from 0 to {self.size - 1} ({self.nodes} x {self.nproc_per_node} ranks)"


def read_expect(node: Node, field: str, world: World, script: Path | None, problems: Problems) -> Expect:
    """Reads the section.

    Args:
        node: its mapping.
        field: its name.
        world: the ranks that it may speak of.
        script: path of the script, in whose folder a check lies; None where that is a problem already.
        problems: takes what is wrong with it.
    """
    section = Section(node, field, EXPECT_KEYS, problems)
    code = partial(whole_number, low=-64, high=255)
    relative, absolute = section.read("tolerance", partial(_tolerance, problems=problems), (None, None))
    return Expect(
        exit=section.read("exit", partial(_per_rank, world=world, read=code, problems=problems), {}),
        notes=section.read("notes", partial(_notes, world=world, problems=problems), {}),
        logs=section.read("logs", partial(_per_rank, world=world, read=pattern, problems=problems), {}),
        calls=section.read("calls", partial(_calls, world=world, problems=problems), None),
        check=section.read("check", partial(check_reference, script=script), None),
        verdict=cast(Verdict, section.read("verdict", partial(choice, choices=VERDICTS), "passed")),
        culprit=section.read("culprit", partial(_rank, world=world), None),
        reason=section.read("reason", pattern, None),
        relative_tolerance=Expect.relative_tolerance if relative is None else relative,
        absolute_tolerance=Expect.absolute_tolerance if absolute is None else absolute,
    )


def _tolerance(node: Node, field: str, problems: Problems) -> tuple[float | None, float | None]:
    section = Section(node, field, TOLERANCE_KEYS, problems)
    difference = partial(number, allowed="a number, 0 or more", fits=lambda value: value >= 0)
    return section.read("relative", difference, None), section.read("absolute", difference, None)


def _rank(node: Node, field: str, world: World) -> int:
    try:
        return whole_number(node, field, 0, (world.size or MAX_RANK + 1) - 1)
    except InvalidError:
        raise refused(node, field, world.allowed_ranks) from None


def _per_rank(node: Node, field: str, world: World, read: Callable[[Node, str], T], problems: Problems) -> dict[int, T]:
    values = {}
    for key, value in pairs(node, field, "a mapping whose keys are ranks, such as {0: ...}", problems):
        with problems.attempt():
            rank = _rank_key(key, field, world)
            values[rank] = read(value, f"{field}.{rank}")
    return values


def _rank_key(node: Node, field: str, world: World) -> int:
    try:
        return _rank(node, field, world)
    except InvalidError:
        quotes = ", without quotes" if kind_of(node) == "text" else ""
        found = f"{field}: found {describe(node)} as a key"
        raise InvalidError(position_of(node), f"{found}; allowed: {world.allowed_ranks}{quotes}") from None


def _notes(node: Node, field: str, world: World, problems: Problems) -> dict[str, Any]:
    notes = {}
    for key, value in pairs(node, field, "a mapping from the names of notes to values", problems):
        with problems.attempt():
            name = text_key(key, field)
            notes[name] = _note(value, f"{field}.{name}", world, problems)
    return notes


def _note(node: Node, field: str, world: World, problems: Problems) -> Any:
    if not (isinstance(node, MappingNode) and node.value and all(kind_of(key) == "integer" for key, _ in node.value)):
        return _plain(node, field, world.tried_ranks, problems)
    values = {}
    for key, value in pairs(node, field, "a mapping", problems):
        with problems.attempt():
            rank = _rank_key(key, field, world)
            values[rank] = _plain(value, f"{field}.{rank}", world.variables(rank), problems)
    return values


def _plain(node: Node, field: str, ranks: Sequence[RankVariables], problems: Problems) -> Any:
    """Plain data; every expression in it has been tried for some of the ranks that it speaks of."""
    if isinstance(node, SequenceNode):
        return [_plain(item, f"{field}[{index}]", ranks, problems) for index, item in enumerate(node.value)]
    if isinstance(node, MappingNode):
        values = {}
        for key, value in pairs(node, field, "a mapping", problems):
            if kind_of(key) == "integer":
                found = f"{field}: found the number {key.value} as a key"
                allowed = "text; a mapping per rank stands directly under the name of the note"
                raise InvalidError(position_of(key), f"{found}; allowed: {allowed}")
            name = text_key(key, field)
            values[name] = _plain(value, f"{field}.{name}", ranks, problems)
        return values
    value = scalar(node, field)
    if isinstance(value, str):
        try:
            if is_expression(value):
                for variables in ranks:
                    evaluate(value, variables)
        except ScenarioError as error:
            raise InvalidError(position_of(node), f"{field}: {error.message}") from None
    return value


def _calls(
    node: Node, field: str, world: World, problems: Problems
) -> tuple[str, ...] | dict[int, tuple[str, ...]] | None:
    """What each rank must have called; every item has been tried for some of the ranks that it speaks of."""
    if not isinstance(node, MappingNode):
        return _call_items(node, field, world.tried_ranks, problems)
    lists = {}
    for key, value in pairs(node, field, "a mapping whose keys are ranks, such as {0: ...}", problems):
        with problems.attempt():
            rank = _rank_key(key, field, world)
            lists[rank] = _call_items(value, f"{field}.{rank}", world.variables(rank), problems)
    return lists


def _call_items(node: Node, field: str, ranks: Sequence[RankVariables], problems: Problems) -> tuple[str, ...]:
    allowed = "a list of calls, such as [all_gather, broadcast from 0], or one for each rank"
    return items(node, field, allowed, partial(_call_item, ranks=ranks), problems)


def _call_item(node: Node, field: str, ranks: Sequence[RankVariables]) -> str:
    value = text(node, field, "a call, such as all_reduce SUM float32[45]", quotable=False)
    try:
        for variables in (None, *ranks):
            parse_calls(value, variables)
    except ScenarioError as error:
        raise InvalidError(position_of(node), f"{field}: {error.message}") from None
    return value
