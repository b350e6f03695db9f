"""Which cases are meant by `-k`: words that their name or file contains, with `and`, `or`, `not` and brackets. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from lab.errors import UsageError
from lab.feature import hook
from lab.features.suite.outcome import Case
from lab.plan.cluster import Shape
from lab.plan.fit import shape_for
from lab.plan.options import PlanOptions
from lab.spec.backends import check_backend, lacking
from lab.spec.expressions import is_per_rank
from lab.spec.scenario import Expect, Scenario
from lab.words import listing, name_ranks, plural

Meant = Callable[[str], bool]
_TOKENS = re.compile(r"\s*([()]|[^\s()]+)")
_WORDS = ("and", "or", "not", "(", ")")


def matching(expression: str) -> Callable[[Case], bool]:
    """Whether a case is meant by an expression such as `scatter and not nodes=5`; letters may be small or capital.

    Raises:
        UsageError: it is not such an expression.
    """
    reading = _Reading(_TOKENS.findall(expression), expression)
    meant = reading.any_of()
    if reading.tokens:
        raise reading.problem()
    return lambda case: meant(f"{case.scenario.source or case.scenario.script} {case.id}".lower())


class _Reading:
    def __init__(self, tokens: list[str], expression: str) -> None:
        self.tokens = tokens
        self.expression = expression

    def any_of(self) -> Meant:
        parts = [self.all_of()]
        while self._next("or"):
            parts.append(self.all_of())
        return lambda text: any(part(text) for part in parts)

    def all_of(self) -> Meant:
        parts = [self.one()]
        while self._next("and"):
            parts.append(self.one())
        return lambda text: all(part(text) for part in parts)

    def one(self) -> Meant:
        if self._next("not"):
            other = self.one()
            return lambda text: not other(text)
        if self._next("("):
            inner = self.any_of()
            if not self._next(")"):
                raise self.problem()
            return inner
        if not self.tokens or self.tokens[0] in _WORDS:
            raise self.problem()
        word = self.tokens.pop(0).lower()
        return lambda text: word in text

    def _next(self, token: str) -> bool:
        if self.tokens and self.tokens[0] == token:
            self.tokens.pop(0)
            return True
        return False

    def problem(self) -> UsageError:
        """What to say of an expression that is none."""
        where = f"at {self.tokens[0]!r}" if self.tokens else "at its end"
        return UsageError(
            f"-k {self.expression!r} cannot be understood {where}",
            "allowed: words of names or files with and, or, not and brackets, such as 'scatter and not nodes=5'",
        )


SEED = "LAB_SEED"
"""The variable in which a script finds its seed."""
HASH_SEED = "PYTHONHASHSEED"
"""An interpreter reads it when it starts: only where each rank has a fresh one can it be set."""


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """What every scenario is run with; an empty dimension is left to the scenario."""

    nodes: tuple[int, ...] = ()
    nproc_per_node: tuple[int, ...] = ()
    backend: tuple[str, ...] = ()
    image: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, values in vars(self).items():
            double = [str(value) for value, count in Counter(values).items() if count > 1]
            if double:
                raise UsageError(f"{_option(name)} names {listing(double)} more than once")
        for backend in self.backend:
            check_backend(backend)

    def cells(self) -> Iterator[dict[str, Any]]:
        """Every combination, each as its dimensions by name."""
        named = {name: values for name, values in vars(self).items() if values}
        for values in product(*named.values()):
            yield dict(zip(named, values, strict=True))


def make_cases(
    scenarios: Sequence[Scenario],
    matrix: Matrix,
    *,
    asked: Mapping[str, Any],
    usual: Shape | None = None,
    engine: str = "",
    cold: bool = False,
    repeat: int = 1,
    seed: int | None = None,
) -> list[Case]:
    """The cases of a suite, in the order of the scenarios; of repetitions, all first ones come first.

    Args:
        scenarios: what is run; those of the same name are told apart by their files.
        matrix: with what.
        asked: fields of a cluster's shape that were asked for.
        usual: the shape of a cluster that is there, which says how large a scenario is that does not say so.
        engine: what provides the nodes; empty: that is not known yet.
        cold: whether every rank has a fresh interpreter.
        repeat: how often each case runs.
        seed: of the first repetition, each later one has the next; None: scripts are given none.
    """
    names = _names(scenarios)
    once = [
        _case(scenario, name, cell, asked, usual or Shape(nodes=1), engine)
        for scenario, name in zip(scenarios, names, strict=True)
        for cell in matrix.cells()
    ]
    found = []
    for repetition in range(1, repeat + 1):
        own_seed = None if seed is None else seed + repetition - 1
        for case in once:
            if case.skipped and repetition > 1:
                continue
            scenario = case.scenario if own_seed is None else _seeded(case.scenario, own_seed, cold)
            repetitions = 1 if case.skipped else repeat
            found.append(
                replace(case, scenario=scenario, repetition=repetition, repetitions=repetitions, seed=own_seed)
            )
    return found


def _case(
    scenario: Scenario, name: str, cell: Mapping[str, Any], asked: Mapping[str, Any], usual: Shape, engine: str
) -> Case:
    asked_size = PlanOptions(nodes=cell.get("nodes"), nproc_per_node=cell.get("nproc_per_node"))
    nodes, nproc_per_node = asked_size.size_of_run(scenario, usual)
    more = {"image": cell["image"]} if "image" in cell else {}
    shape = shape_for(scenario, PlanOptions(nodes=nodes, nproc_per_node=nproc_per_node), {**asked, **more})
    place = ",".join(f"{_option(dimension)[2:]}={value}" for dimension, value in cell.items())
    return Case(
        name=f"{name}[{place}]" if place else name,
        scenario=replace(scenario, image=shape.image),
        nodes=nodes,
        nproc_per_node=nproc_per_node,
        backend=cell.get("backend"),
        shape=replace(shape, nproc_per_node=1),
        skipped=_impossible(scenario, nodes * nproc_per_node, cell, engine),
    )


def _impossible(scenario: Scenario, world_size: int, cell: Mapping[str, Any], engine: str) -> str:
    """Why a scenario cannot be run like that; empty if it can."""
    backend = cell.get("backend") or scenario.backend
    missing = lacking(backend, scenario.script, scenario.needed) if backend else ""
    if missing:
        return missing
    if scenario.extra:
        beyond = hook("beyond")  # few scenarios break anything
        wrong = beyond(scenario, engine) if beyond else ""
        if wrong:
            return f"it is to {wrong}"
    absent = [rank for rank in named_ranks(scenario.expect) if rank >= world_size]
    if absent and ("nodes" in cell or "nproc_per_node" in cell):
        here = f"here {'is' if world_size == 1 else 'are'} {plural(world_size, 'rank')}"
        return f"it expects something of {name_ranks(absent)}, and {here}"
    return ""


def named_ranks(expect: Expect) -> set[int]:
    """The ranks that a scenario expects something of by their number."""
    mappings = [*expect.by_rank, *(notes for notes in expect.notes.values() if is_per_rank(notes))]
    return {*(rank for mapping in mappings for rank in mapping), *([] if expect.culprit is None else [expect.culprit])}


def _seeded(scenario: Scenario, seed: int, cold: bool) -> Scenario:
    """The scenario with its seed; what it says itself of these variables stays."""
    said = {SEED: str(seed), **({HASH_SEED: str(seed % 2**32)} if cold or scenario.cold else {})}
    return replace(scenario, env={**said, **scenario.env})


def _names(scenarios: Sequence[Scenario]) -> list[str]:
    """A name for each: its own; where several have the same, with the folder or file that tells them apart."""
    count = Counter(scenario.name for scenario in scenarios)
    found = [scenario.name if count[scenario.name] == 1 else _longer(scenario) for scenario in scenarios]
    return [name if found.count(name) == 1 else f"{name}-{at + 1}" for at, name in enumerate(found)]


def _longer(scenario: Scenario) -> str:
    file = scenario.source or scenario.script
    return f"{file.parent.name}/{file.stem}"


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
