"""The cases of a suite: from scenarios and sizes, which of them `-k` means, in which order, on how many clusters."""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from lab.engine.doctor import AGENT_BYTES, WORKER_BYTES, refusal
from lab.errors import UsageError
from lab.feature import hook
from lab.features.suite.outcome import Case
from lab.plan.cluster import Shape
from lab.plan.fit import PlanOptions, shape_for
from lab.record.read import Record
from lab.spec.expressions import is_per_rank
from lab.spec.keys import check_backend, lacking
from lab.spec.scenario import Expect, Scenario
from lab.words import format_bytes, listing, name_ranks, plural

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
        parts = self._parts("or", self.all_of)
        return lambda text: any(part(text) for part in parts)

    def all_of(self) -> Meant:
        parts = self._parts("and", self.one)
        return lambda text: all(part(text) for part in parts)

    def _parts(self, word: str, read: Callable[[], Meant]) -> list[Meant]:
        parts = [read()]
        while self._next(word):
            parts.append(read())
        return parts

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
    once = [
        _case(scenario, name, cell, asked, usual or Shape(nodes=1), engine)
        for scenario, name in zip(scenarios, _names(scenarios), strict=True)
        for cell in matrix.cells()
    ]
    cases = []
    for repetition in range(1, repeat + 1):
        for case in once:
            if case.skipped and repetition > 1:
                continue
            one = replace(case, repetition=repetition, repetitions=1 if case.skipped else repeat)
            cases.append(one if seed is None else _seeded(one, seed + repetition - 1, cold))
    return cases


def _case(
    scenario: Scenario, name: str, cell: Mapping[str, Any], asked: Mapping[str, Any], usual: Shape, engine: str
) -> Case:
    asked_size = PlanOptions(nodes=cell.get("nodes"), nproc_per_node=cell.get("nproc_per_node"))
    nodes, nproc_per_node = asked_size.size_of_run(scenario, usual)
    more = {"image": cell["image"]} if "image" in cell else {}
    shape = shape_for(scenario, PlanOptions(nodes=nodes, nproc_per_node=nproc_per_node), {**asked, **more})
    place = ",".join(f"{_option(dimension)[2:]}={value}" for dimension, value in cell.items())
    why_not = _impossible(scenario, nodes * nproc_per_node, cell, engine)
    return Case(
        name=f"{name}[{place}]" if place else name,
        scenario=replace(scenario, image=shape.image),
        nodes=nodes,
        nproc_per_node=nproc_per_node,
        backend=cell.get("backend"),
        shape=replace(shape, nproc_per_node=1),
        skipped=why_not or (refusal(shape.gpus) if shape.gpus else ""),
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


def _seeded(case: Case, seed: int, cold: bool) -> Case:
    """The case with its seed; what its scenario says itself of these variables stays."""
    env = {SEED: str(seed), **({HASH_SEED: str(seed % 2**32)} if cold or case.scenario.cold else {})}
    return replace(case, seed=seed, scenario=replace(case.scenario, env={**env, **case.scenario.env}))


def _names(scenarios: Sequence[Scenario]) -> list[str]:
    """A name for each: its own; where several have the same, with the folder or file that tells them apart."""
    count = Counter(scenario.name for scenario in scenarios)
    files = [scenario.source or scenario.script for scenario in scenarios]
    names = [
        scenario.name if count[scenario.name] == 1 else f"{file.parent.name}/{file.stem}"
        for scenario, file in zip(scenarios, files, strict=True)
    ]
    return [name if names.count(name) == 1 else f"{name}-{at}" for at, name in enumerate(names, start=1)]


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


_FOLDER = re.compile(r"\d{8}-\d{6}-((.+?)(?:-\d+)?)")
"""Its second part is for the further runs of one second."""
_AROUND_S = 0.1
"""What a run takes besides the time of its ranks."""


def known_durations(runs: Path, scenarios: Iterable[str]) -> dict[str, float]:
    """Seconds that the latest run of each of these scenarios took, by name; without those that are not on record."""
    wanted = set(scenarios)
    found: dict[str, float] = {}
    try:
        names = sorted(os.listdir(runs), reverse=True)
    except OSError:
        return {}
    for name in names:
        match = _FOLDER.fullmatch(name)
        scenario = next((one for one in match.groups() if one in wanted), None) if match else None
        if scenario is not None and scenario not in found:
            duration_s = Record(path=runs / name).result_or_refusal().duration_s
            if duration_s and duration_s > 0:  # it came to an end
                found[scenario] = duration_s + _AROUND_S
    return found


CORES_PER_CLUSTER = 2
"""Ranks of a run wait for each other about as long as they compute."""
WORTH_IT = 5.0
"""A further cluster is made where what is left takes each of those there so many times as long as making one."""
_GUESS_S = 1.0
"""What a case takes of which nothing is known."""


class Jobs(NamedTuple):
    """How many clusters there may be side by side."""

    most: int
    why: str
    """One line for a person."""


def choose_jobs(asked: int | None, cases: Sequence[Case], cores: int, free_bytes: int | None) -> Jobs:
    """As many clusters as were asked for, else as cores and memory carry; never more than there are cases."""
    each_bytes = max((case.nodes * AGENT_BYTES + case.world_size * WORKER_BYTES for case in cases), default=1)
    by_cores = max(1, cores // CORES_PER_CLUSTER)
    by_memory = max(1, free_bytes // each_bytes) if free_bytes is not None else by_cores
    most = max(1, min(asked or min(by_cores, by_memory), len(cases)))
    clusters = f"{'at most ' if most > 1 else ''}{plural(most, 'cluster')}"
    if most == len(cases) and most < (asked or min(by_cores, by_memory)):
        return Jobs(most, f"{clusters}: there {'are' if most > 1 else 'is'} {plural(most, 'case')}")
    if asked is not None:
        return Jobs(most, f"{clusters} (-j {asked})")
    machine = plural(cores, "core")
    if free_bytes is not None:
        machine = f"{machine}, {format_bytes(free_bytes)} of memory free, {format_bytes(each_bytes)} for each"
    return Jobs(most, f"{clusters}: this machine has {machine}")


def in_order(cases: Sequence[Case], *, jobs: int, shuffle: int | None, known_s: Mapping[str, float]) -> list[int]:
    """The cases that can run, by number, in the order in which they begin.

    Args:
        cases: all of them.
        jobs: on more than one cluster the longest come first, so that none is left running alone at the end.
        shuffle: the seed of an order by chance; None: see above, else as they came.
        known_s: what scenarios took before, by the name of each.
    """
    order = [number for number, case in enumerate(cases) if not case.skipped]
    if shuffle is not None:
        random.Random(shuffle).shuffle(order)
    elif jobs > 1 and known_s:
        usual = sorted(known_s.values())[len(known_s) // 2]
        order.sort(key=lambda number: -known_s.get(cases[number].scenario.name, usual))
    return order


def next_fitting(queue: Sequence[int], cases: Sequence[Case], cluster: Shape) -> int | None:
    """The first that can run on a cluster of this shape; None if none can."""
    return next((number for number in queue if cases[number].fits(cluster)), None)


def cluster_for(queue: Iterable[int], cases: Sequence[Case], first: int) -> Shape:
    """A cluster for one case that is large enough for all that are left and could share it."""
    case = cases[first]
    nodes = max(cases[number].nodes for number in (first, *queue) if cases[number].ground == case.ground)
    return replace(case.shape, nodes=nodes)


class Pace:
    """How long cases and clusters have taken so far in a suite, and earlier.

    Args:
        known_s: what scenarios took in earlier suites, by the name of each.
    """

    def __init__(self, known_s: Mapping[str, float]) -> None:
        self._known_s = known_s
        self._took_s: list[float] = []
        self._make_s: float | None = None
        """What making the slowest cluster took; None: none is made yet."""

    def took(self, seconds: float) -> None:
        """A case has ended."""
        self._took_s.append(seconds)

    def made(self, seconds: float) -> None:
        """A cluster was made."""
        self._make_s = max(seconds, self._make_s or 0.0)

    def left_s(self, cases: Iterable[Case], running_s: Sequence[float]) -> float:
        """What these will take, one after the other; those that run now have taken so long already."""
        seen = [*self._took_s, *running_s]
        usual = sum(seen) / len(seen) if seen else _GUESS_S
        return sum(self._known_s.get(case.scenario.name, usual) for case in cases)

    def pays(self, cases: Iterable[Case], running_s: Sequence[float], workers: int) -> bool:
        """Whether a further cluster beside those of so many workers saves more time than making it costs."""
        if workers == 0 or self._make_s is None:
            return workers == 0
        return self.left_s(cases, running_s) / workers > WORTH_IT * self._make_s


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
