"""What is asked of a suite, its cases, which of them `-k` means, and what came of each."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import chain, product
from typing import Any

from lab.engine.doctor import explain_missing_gpus
from lab.engine.protocol import Engine
from lab.errors import UsageError
from lab.feature import find_hook
from lab.frozen import Frozen
from lab.plan.cluster import Shape
from lab.plan.plan import PlanOptions, shape_for
from lab.record.read import Record
from lab.record.result import Result
from lab.report.table import group_equal
from lab.run.cluster_slot import RunAttempt
from lab.run.options import RunOptions
from lab.spec.expressions import is_per_rank
from lab.spec.keys import check_backend
from lab.spec.scenario import Scenario
from lab.words import format_count, join_words, name_ranks


class Case(Frozen):
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
    def cluster_key(self) -> str:
        """What a cluster has to be, but for the number of its nodes; the same for cases that can share one."""
        return cluster_key_of(self.shape)

    def fits(self, cluster: Shape) -> bool:
        """Whether it can run on a cluster of this shape."""
        return self.nodes <= cluster.nodes and self.cluster_key == cluster_key_of(cluster)


def cluster_key_of(shape: Shape) -> str:
    """A shape without its size: a case says itself how many nodes and workers it has."""
    return replace(shape, nodes=1, nproc_per_node=1).to_json()


STATUSES = ("passed", "flaky", "failed", "hung", "error", "skipped")


class Outcome(Frozen):
    """What came of one case."""

    case: Case
    attempts: tuple[RunAttempt, ...] = ()
    """All but the last failed; empty where it cannot run."""

    @property
    def status(self) -> str:
        """The last verdict; `flaky` where it passed only when it was tried again."""
        if not self.attempts:
            return "skipped"
        return "flaky" if self.last.passed and len(self.attempts) > 1 else self.last.verdict

    @property
    def last(self) -> Result:
        """That of the last attempt; of a case that cannot run, an empty one."""
        return self.attempts[-1].result if self.attempts else Result(verdict="passed", scenario=self.case.scenario.name)

    @property
    def decisive(self) -> RunAttempt:
        """The attempt that says most: the last, or of one that is flaky the last that failed."""
        return self.attempts[-2] if self.status == "flaky" else self.attempts[-1]

    @property
    def good(self) -> bool:
        """Whether nothing has to be done about it."""
        return self.status in ("passed", "skipped")

    @property
    def exit_code(self) -> int:
        """That of the last attempt."""
        return self.last.exit_code

    @property
    def took_s(self) -> float:
        """Seconds of all attempts."""
        return sum(attempt.took_s for attempt in self.attempts)

    @property
    def reason(self) -> str:
        """Why it is not simply passed, or how it passed, in one sentence."""
        if not self.attempts:
            return self.case.skipped
        before = f"passed at attempt {len(self.attempts)}; before: " if self.status == "flaky" else ""
        return before + self.decisive.result.reason

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


def _attempt_json(attempt: RunAttempt) -> dict[str, Any]:
    result, culprit = attempt.result, attempt.result.culprit
    return {
        **{name: getattr(result, name) for name in ("verdict", "reason", "exit_code", "duration_s", "run")},
        "hint": attempt.hint,
        "culprit": {"rank": culprit.rank, "node": culprit.node, "error": culprit.error} if culprit else None,
        "took_s": round(attempt.took_s, 6),
        "record": str(result.path) if result.path is not None else None,
    }


class SuiteResult(Frozen):
    """What came of a suite."""

    suite: str
    """Its name, which the records of its runs bear."""
    outcomes: tuple[Outcome, ...]
    """Of the cases that ran or cannot, in the order of the cases."""
    planned: int
    """How many cases there were to be."""
    clusters: int = 0
    """How many there were side by side."""
    began: float = 0.0
    """Unix time."""
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
    def listed_failures(self) -> Sequence[Outcome]:
        """The bad ones, but for those of a suite that repeats: their rates tell."""
        return () if self.repeated else self.bad

    @property
    def records(self) -> list[Record]:
        """Of each case that ran, the record of the last attempt."""
        return [Record(path=one.last.path) for one in self.outcomes if one.last.path is not None]

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
            "rates": [rate.to_json() for rate in compute_rates(self.outcomes)] if self.repeated else [],
        }


_Z = 1.959964
"""Of the normal distribution, for 95%."""
_VARIES = re.compile(
    r"\d+(?:[.,]\d+)*\s?(?:µs|ms|s|h|m(?: \d+s)?|B|kB|MB|GB|KiB|MiB|GiB|TB)\b|0x[0-9a-f]+|\b\d+\.\d+(?:e[+-]?\d+)?\b"
    r"|(?<=\[pid )\d+|(?<=port )\d+|(?<=:)\d{4,5}\b"
)
"""What differs from run to run of one and the same failure: times, sizes, addresses, ports, measured numbers."""


class Kind(Frozen):
    """One way in which repetitions of a case ended other than passed."""

    status: str
    reason: str
    """That of the first; the others' differ at most in times, sizes, addresses and measured numbers."""
    count: int
    seeds: tuple[int, ...]
    """Of all of them."""
    record: str | None
    """Of the first."""


class Rate(Frozen):
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
        return wilson_interval(self.failed, self.ran)

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {**vars(self), "part": self.part, "between": self.bounds, "kinds": [*map(vars, self.kinds)]}


def compute_rates(outcomes: Iterable[Outcome]) -> list[Rate]:
    """The rate of each case that ran, in the order in which they came first."""
    ran = [outcome for outcome in outcomes if outcome.attempts]
    by_name = group_equal((number, outcome.case.name) for number, outcome in enumerate(ran))
    return [_rate_of(name, [ran[number] for number in numbers]) for numbers, name in by_name]


def _rate_of(name: str, ran: Sequence[Outcome]) -> Rate:
    bad = sorted((one for one in ran if not one.good), key=lambda outcome: outcome.case.repetition)
    kinds = []
    forms = ((number, (one.status, mask_varying(one.decisive.result.reason))) for number, one in enumerate(bad))
    for numbers, (status, _) in group_equal(forms):
        first, seeds = bad[numbers[0]].decisive.result, (bad[number].case.seed for number in numbers)
        known, record = tuple(seed for seed in seeds if seed is not None), str(first.path) if first.path else None
        kinds.append(Kind(status=status, reason=first.reason, count=len(numbers), seeds=known, record=record))
    return Rate(name=name, ran=len(ran), failed=len(bad), kinds=tuple(sorted(kinds, key=lambda kind: -kind.count)))


def mask_varying(reason: str) -> str:
    """A reason without what differs from run to run of the same failure."""
    return _VARIES.sub("…", reason)


def wilson_interval(count: int, of: int) -> tuple[float, float]:
    """The interval in which a part lies with 95% confidence, from so many of so many."""
    part, square = count / of, _Z * _Z
    middle = (part + square / (2 * of)) / (1 + square / of)
    half = _Z * math.sqrt(part * (1 - part) / of + square / (4 * of * of)) / (1 + square / of)
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return (0.0 if count == 0 else low), (1.0 if count == of else high)


_GRAMMAR = (ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.Name, ast.Load)


def parse_filter(expression: str) -> Callable[[Case], bool]:
    """Whether a case is meant by an expression such as `scatter and not nodes=5`; letters may be small or capital.

    Raises:
        UsageError: it is not such an expression.
    """
    text = " ".join(expression.lower().split())
    # words hold any characters: Python reads names of the same lengths in their places
    names = re.sub(r"[^\s()]+", lambda word: word[0] if word[0] in ("and", "or", "not") else "x" * len(word[0]), text)
    tree, where = None, ""
    try:
        tree = ast.parse(names, mode="eval")
    except SyntaxError as error:
        rest = text[error.offset - 1 :].split() if error.offset else []
        where = f" at {rest[0]!r}" if rest else " at its end"
    except (RecursionError, MemoryError):
        where = ": it is nested too deep"
    if tree is None or not all(isinstance(node, _GRAMMAR) for node in ast.walk(tree)):
        raise UsageError(
            f"-k {expression!r} cannot be understood{where}",
            "allowed: words of names or files with and, or, not and brackets, such as 'scatter and not nodes=5'",
        )

    def holds(node: ast.expr, name: str) -> bool:
        match node:
            case ast.BoolOp(ast.And(), parts):
                return all(holds(part, name) for part in parts)
            case ast.BoolOp(ast.Or(), parts):
                return any(holds(part, name) for part in parts)
            case ast.UnaryOp(ast.Not(), part):
                return not holds(part, name)
        return text[node.col_offset : node.end_col_offset] in name

    meant = tree.body
    return lambda case: holds(meant, f"{case.scenario.source or case.scenario.script} {case.id}".lower())


_SEED = "LAB_SEED"
"""The variable in which a script finds its seed."""
_HASH_SEED = "PYTHONHASHSEED"
"""An interpreter reads it when it starts: only where each rank has a fresh one can it be set."""


class Matrix(Frozen):
    """What every scenario is run with; an empty dimension is left to the scenario."""

    nodes: tuple[int, ...] = ()
    nproc_per_node: tuple[int, ...] = ()
    backend: tuple[str, ...] = ()
    image: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, values in vars(self).items():
            double = [str(value) for value, count in Counter(values).items() if count > 1]
            if double:
                raise UsageError(f"{_option(name)} names {join_words(double)} more than once")
        for backend in self.backend:
            check_backend(backend)

    def cells(self) -> Iterator[dict[str, Any]]:
        """Every combination, each as its dimensions by name."""
        named = {name: values for name, values in vars(self).items() if values}
        for values in product(*named.values()):
            yield dict(zip(named, values, strict=True))


class SuiteRequest(Frozen):
    """What is asked of a suite."""

    scenarios: Sequence[Scenario]
    matrix: Matrix = Matrix()  # frozen
    only: str = ""
    """Words that names and files of cases must contain, see `matching`; empty: all."""
    engine: str | Engine = "auto"
    name: str | None = None
    """A cluster; None: that of the current folder."""
    shape: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a cluster's shape that were asked for."""
    options: RunOptions = RunOptions()  # frozen
    """How each case is run."""
    jobs: int | None = None
    """At most so many clusters side by side; None: as many as the machine carries."""
    retries: int = 0
    """How often a case that failed is tried again."""
    repeat: int = 1
    shuffle: bool = False
    """Whether the order is by chance."""
    seed: int | None = None
    """Of the order, and of the first repetition; None: one by chance, where one is needed."""
    most_failures: int | None = None
    """Nothing begins any more after so many cases have failed; None: all run."""


def make_cases(
    asked: SuiteRequest, engine: str = "", usual: Shape | None = None, seed: int | None = None
) -> list[Case]:
    """The cases that are meant, in the order of the scenarios; of repetitions, all first ones come first.

    Args:
        asked: what is asked of the suite; scenarios of the same name differ in their files.
        engine: what provides the nodes; empty: that is not known yet.
        usual: the shape of a cluster that is there, which says how large a scenario is that does not say so.
        seed: of the first repetition, each later one has the next; None: scripts are given none.

    Raises:
        UsageError: there are none.
    """
    once = [
        _make_case(scenario, name, cell, asked.shape, usual or Shape(nodes=1), engine)
        for scenario, name in zip(asked.scenarios, _names(asked.scenarios), strict=True)
        for cell in asked.matrix.cells()
    ]
    cases = []
    for repetition, case in product(range(1, asked.repeat + 1), once):
        if case.skipped and repetition > 1:
            continue
        one = replace(case, repetition=repetition, repetitions=1 if case.skipped else asked.repeat)
        if seed is not None:  # what its scenario says itself of these variables stays
            own = seed + repetition - 1
            is_fresh = asked.options.cold or case.scenario.cold
            env = {_SEED: str(own), **({_HASH_SEED: str(own % 2**32)} if is_fresh else {})}
            one = replace(one, seed=own, scenario=replace(case.scenario, env={**env, **case.scenario.env}))
        cases.append(one)
    chosen = list(filter(parse_filter(asked.only), cases)) if asked.only else cases
    if not chosen:
        raise UsageError(f"none of {len(cases)} cases is meant by -k {asked.only!r}", "--list shows them all")
    return chosen


def _make_case(
    scenario: Scenario, name: str, cell: Mapping[str, Any], asked: Mapping[str, Any], usual: Shape, engine: str
) -> Case:
    asked_size = PlanOptions(nodes=cell.get("nodes"), nproc_per_node=cell.get("nproc_per_node"))
    nodes, nproc_per_node = asked_size.size_of_run(scenario, usual)
    size = PlanOptions(nodes=nodes, nproc_per_node=nproc_per_node)
    shape = shape_for(scenario, size, {**asked, **{key: cell[key] for key in cell if key == "image"}})
    dimensions = ",".join(f"{_option(dimension)[2:]}={value}" for dimension, value in cell.items())
    why_not = _impossible(scenario, nodes * nproc_per_node, cell, engine)
    return Case(
        name=f"{name}[{dimensions}]" if dimensions else name,
        scenario=replace(scenario, image=shape.image),
        nodes=nodes,
        nproc_per_node=nproc_per_node,
        backend=cell.get("backend"),
        shape=replace(shape, nproc_per_node=1),
        skipped=why_not or (explain_missing_gpus(shape.gpus) if shape.gpus else ""),
    )


def _impossible(scenario: Scenario, world_size: int, cell: Mapping[str, Any], engine: str) -> str:
    """Why a scenario cannot be run like that; empty if it can."""
    backend = cell.get("backend") or scenario.backend
    find_lacking = find_hook("lacking") if backend else None
    if find_lacking and (missing := find_lacking(scenario, backend)):
        return str(missing)
    beyond = find_hook("beyond") if scenario.extra else None  # few scenarios break anything
    if beyond and (problem := beyond(scenario, engine)):
        return f"it is to {problem}"
    expect = scenario.expect
    by_rank = (*expect.by_rank, *(notes for notes in expect.notes.values() if is_per_rank(notes)))
    named = {*chain.from_iterable(by_rank), *([] if expect.culprit is None else [expect.culprit])}
    absent = [rank for rank in named if rank >= world_size]
    if absent and ("nodes" in cell or "nproc_per_node" in cell):
        here = f"here {'is' if world_size == 1 else 'are'} {format_count(world_size, 'rank')}"
        return f"it expects something of {name_ranks(absent)}, and {here}"
    return ""


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
