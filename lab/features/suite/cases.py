"""The cases of a suite, which of them `-k` means, in which order they run, and what came of each."""

from __future__ import annotations

import math
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from lab.engine.doctor import AGENT_BYTES, WORKER_BYTES, refusal
from lab.errors import UsageError
from lab.feature import hook
from lab.plan.cluster import Shape
from lab.plan.fit import PlanOptions, shape_for
from lab.record.read import Record
from lab.record.result import Result
from lab.spec.expressions import is_per_rank
from lab.spec.keys import check_backend
from lab.spec.scenario import Expect, Scenario
from lab.words import format_bytes, listing, name_ranks, plural


@dataclass(frozen=True, kw_only=True)
class Case:
    """One thing that is run, or that cannot be."""

    name: str
    """The scenario and its place in the matrix, such as `scatter[nodes=5]`; the same for every repetition."""
    scenario: Scenario
    """With the arguments, variables and the seed of this case."""
    nodes: int
    nproc_per_node: int
    backend: str | None = None
    """What carries the bytes whatever its script names; None: what that or the scenario says."""
    shape: Shape
    """The smallest cluster that it can run on."""
    repetition: int = 1
    repetitions: int = 1
    """How often it runs."""
    seed: int | None = None
    """What its ranks find as `LAB_SEED`; None: nothing."""
    skipped: str = ""
    """Why it cannot run; empty if it can."""

    @property
    def id(self) -> str:
        """Tells it from every other case: `scatter[nodes=5]`, and with repetitions `scatter[nodes=5] #17`."""
        return f"{self.name} #{self.repetition}" if self.repetitions > 1 else self.name

    @property
    def world_size(self) -> int:
        """How many ranks it has."""
        return self.nodes * self.nproc_per_node

    @cached_property
    def ground(self) -> str:
        """What a cluster has to be, but for the number of its nodes; the same for cases that can share one."""
        return ground_of(self.shape)

    def fits(self, cluster: Shape) -> bool:
        """Whether it can run on a cluster of this shape."""
        return self.nodes <= cluster.nodes and self.ground == ground_of(cluster)


def ground_of(shape: Shape) -> str:
    """A shape without its size: a case says itself how many nodes and workers it has."""
    return replace(shape, nodes=1, nproc_per_node=1).to_json()


Status = Literal["passed", "flaky", "failed", "hung", "error", "skipped"]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One run of a case, or what kept it from beginning."""

    result: Result
    hint: str = ""
    """What to do about an error."""
    took_s: float = 0.0
    """Seconds with all that belongs to it, but for making its cluster."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one case."""

    case: Case
    attempts: tuple[Attempt, ...] = ()
    """All but the last failed; empty where it cannot run."""

    @property
    def status(self) -> Status:
        """The last verdict; `flaky` where it passed only when it was tried again."""
        if not self.attempts:
            return "skipped"
        verdict = self.attempts[-1].result.verdict
        return "flaky" if verdict == "passed" and len(self.attempts) > 1 else verdict

    @property
    def telling(self) -> Attempt:
        """The attempt that says most: the last, or of one that is flaky the last that failed."""
        return self.attempts[-2] if self.status == "flaky" else self.attempts[-1]

    @property
    def good(self) -> bool:
        """Whether nothing has to be done about it."""
        return self.status in ("passed", "skipped")

    @property
    def exit_code(self) -> int:
        """That of the last attempt."""
        return self.attempts[-1].result.exit_code if self.attempts else 0

    @property
    def took_s(self) -> float:
        """Seconds of all attempts."""
        return sum(attempt.took_s for attempt in self.attempts)

    @property
    def reason(self) -> str:
        """Why it is not simply passed, or how it passed, in one sentence."""
        if not self.attempts:
            return self.case.skipped
        reason = self.telling.result.reason
        if self.status == "flaky":
            return f"passed at attempt {len(self.attempts)}; before: {reason}"
        return reason

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain data."""
        case, attempts = self.case, [_attempt_json(attempt) for attempt in self.attempts]
        return {
            "kind": "outcome",
            "scenario": case.scenario.name,
            **{name: getattr(case, name) for name in ("id", "nodes", "nproc_per_node", "seed", "repetition")},
            **{name: getattr(self, name) for name in ("status", "reason", "exit_code")},
            "image": case.scenario.image,
            "backend": case.backend or case.scenario.backend,
            "took_s": round(self.took_s, 6),
            "record": attempts[-1]["record"] if attempts else None,
            "attempts": attempts,
        }


def _attempt_json(attempt: Attempt) -> dict[str, Any]:
    result, culprit = attempt.result, attempt.result.culprit
    return {
        **{name: getattr(result, name) for name in ("verdict", "reason", "exit_code", "duration_s", "run")},
        "hint": attempt.hint,
        "culprit": {"rank": culprit.rank, "node": culprit.node, "error": culprit.error} if culprit else None,
        "took_s": round(attempt.took_s, 6),
        "record": str(result.path) if result.path is not None else None,
    }


@dataclass(frozen=True, kw_only=True)
class SuiteResult:
    """What came of a suite."""

    suite: str
    """Its name, which the records of its runs bear."""
    outcomes: tuple[Outcome, ...]
    """Of the cases that ran or cannot, in the order of the cases."""
    planned: int
    """How many cases there were to be."""
    clusters: int = 0
    """How many there were side by side."""
    duration_s: float = 0.0
    seed: int | None = None
    stopped: str = ""
    """Why the rest did not run; empty where all did."""
    stop_code: int = 0
    """The exit code of what stopped it: 130 interrupted, 3 no engine."""

    @property
    def counts(self) -> dict[str, int]:
        """How many came to each status; without those that none came to."""
        count = Counter[str](outcome.status for outcome in self.outcomes)
        return {status: count[status] for status in STATUSES if count[status]}

    @property
    def not_run(self) -> int:
        """How many cases did not run although they could."""
        return self.planned - len(self.outcomes)

    @property
    def bad(self) -> Sequence[Outcome]:
        """The outcomes about which something has to be done; those that are flaky are among them."""
        return [outcome for outcome in self.outcomes if not outcome.good]

    @property
    def told_one_by_one(self) -> Sequence[Outcome]:
        """The bad ones, but for those of a suite that repeats: their rates tell."""
        return () if self.repeated else self.bad

    @property
    def records(self) -> list[Record]:
        """Of each case that ran, the record of the last attempt."""
        last = [outcome.attempts[-1].result.path for outcome in self.outcomes if outcome.attempts]
        return [Record(path=path) for path in last if path is not None]

    @property
    def exit_code(self) -> int:
        """The worst of all, which is the highest; a case that is flaky or was skipped counts as passed."""
        return max((self.stop_code, *(outcome.exit_code for outcome in self.outcomes)))

    @property
    def repeated(self) -> bool:
        """Whether cases ran more than once."""
        return any(outcome.case.repetitions > 1 for outcome in self.outcomes)

    def to_json(self) -> dict[str, Any]:
        """The summary as plain data."""
        named = ("suite", "exit_code", "counts", "planned", "not_run", "stopped", "clusters", "seed")
        return {
            "kind": "summary",
            **{name: getattr(self, name) for name in named},
            "duration_s": round(self.duration_s, 6),
            "rates": [rate.to_json() for rate in rates(self.outcomes)] if self.repeated else [],
        }


_Z = 1.959964
"""Of the normal distribution, for 95%."""
_VARIES = re.compile(
    r"\d+(?:[.,]\d+)*\s?(?:µs|ms|s|h|m(?: \d+s)?|B|kB|MB|GB|KiB|MiB|GiB|TB)\b|0x[0-9a-f]+|\b\d+\.\d+(?:e[+-]?\d+)?\b"
    r"|(?<=\[pid )\d+|(?<=port )\d+|(?<=:)\d{4,5}\b"
)
"""What differs from run to run of one and the same failure: times, sizes, addresses, ports, measured numbers."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One way in which repetitions of a case ended other than passed."""

    status: str
    reason: str
    """That of the first; the others' differ at most in times, sizes, addresses and measured numbers."""
    count: int
    seeds: tuple[int, ...]
    """Of all of them."""
    record: str | None
    """Of the first."""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """What came of all repetitions of one case."""

    name: str
    ran: int
    failed: int
    """How many did not pass at the first attempt."""
    kinds: tuple[Kind, ...]
    """The most frequent first."""

    @property
    def part(self) -> float:
        """Part that failed."""
        return self.failed / self.ran

    @property
    def bounds(self) -> tuple[float, float]:
        """Between these the part would lie in the long run, in 95 of 100 such hunts (Wilson's interval)."""
        return wilson(self.failed, self.ran)

    @property
    def differs(self) -> bool:
        """Whether repetitions came to different ends."""
        return len(self.kinds) + (self.failed < self.ran) > 1

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        kinds = [{**vars(kind), "seeds": list(kind.seeds)} for kind in self.kinds]
        return {**vars(self), "part": self.part, "between": list(self.bounds), "kinds": kinds}


def rates(outcomes: Iterable[Outcome]) -> list[Rate]:
    """The rate of each case that ran, in the order in which they came first."""
    by_name: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.attempts:
            by_name.setdefault(outcome.case.name, []).append(outcome)
    return [
        Rate(name=name, ran=len(ran), failed=sum(not one.good for one in ran), kinds=_kinds(ran))
        for name, ran in by_name.items()
    ]


def _kinds(ran: Sequence[Outcome]) -> tuple[Kind, ...]:
    alike: dict[tuple[str, str], list[Outcome]] = {}
    for one in sorted(ran, key=lambda outcome: outcome.case.repetition):
        if not one.good:
            alike.setdefault((one.status, what_stays(one.telling.result.reason)), []).append(one)
    kinds = []
    for (status, _), group in alike.items():
        first, seeds = group[0].telling.result, tuple(one.case.seed for one in group if one.case.seed is not None)
        record = str(first.path) if first.path else None
        kinds.append(Kind(status=status, reason=first.reason, count=len(group), seeds=seeds, record=record))
    return tuple(sorted(kinds, key=lambda kind: -kind.count))


def what_stays(reason: str) -> str:
    """A reason without what differs from run to run of the same failure."""
    return _VARIES.sub("…", reason)


def wilson(count: int, of: int) -> tuple[float, float]:
    """The interval in which a part lies with 95% confidence, from so many of so many."""
    if of == 0:
        return 0.0, 1.0
    part, square = count / of, _Z * _Z
    middle = (part + square / (2 * of)) / (1 + square / of)
    half = _Z * math.sqrt(part * (1 - part) / of + square / (4 * of * of)) / (1 + square / of)
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return (0.0 if count == 0 else low), (1.0 if count == of else high)


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
    find_lacking = hook("lacking") if backend else None
    if find_lacking and (missing := find_lacking(scenario, backend)):
        return str(missing)
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
