"""Define the request for a suite, its cases, the filter `-k`, and the outcomes."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import chain, product
from pathlib import Path
from typing import Any

from lab.engine.doctor import explain_missing_gpus
from lab.engine.protocol import Engine
from lab.errors import ScenarioError, UsageError
from lab.feature import find_hook
from lab.frozen import Frozen
from lab.plan.cluster import Shape
from lab.plan.plan import PlanOptions, shape_for
from lab.record.read import Record
from lab.record.result import Result
from lab.report.style import group_equal
from lab.run.cluster_slot import RunAttempt
from lab.run.options import RunOptions
from lab.spec.expressions import is_per_rank
from lab.spec.keys import check_backend
from lab.spec.kinds import make_slug
from lab.spec.load import open_scenario
from lab.spec.scenario import Scenario
from lab.words import format_count, join_words, name_ranks


class Case(Frozen):
    """One thing to run, or one that cannot run."""

    name: str
    """The scenario and its cell in the matrix, such as `scatter[nodes=5]`; the same for each repetition."""
    scenario: Scenario
    """With the arguments, variables, and seed of this case."""
    nodes: int
    nproc_per_node: int
    backend: str | None = None
    """Backend whatever the script names; None: that of the script or the scenario."""
    shape: Shape
    """The smallest cluster that it can run on."""
    repetition: int = 1
    repetitions: int = 1
    """How often it runs."""
    seed: int | None = None
    """Value of `LAB_SEED` on its ranks; None: unset."""
    skipped: str = ""
    """Why it cannot run; empty if it can."""

    @property
    def id(self) -> str:
        """Unique name: `scatter[nodes=5]`, with repetitions `scatter[nodes=5] #17`."""
        return f"{self.name} #{self.repetition}" if self.repetitions > 1 else self.name

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.nodes * self.nproc_per_node

    @cached_property
    def cluster_key(self) -> str:
        """The required shape except its size; cases with equal keys can share a cluster."""
        return cluster_key_of(self.shape)

    def fits(self, cluster: Shape) -> bool:
        """Return whether it can run on a cluster of this shape."""
        return self.nodes <= cluster.nodes and self.cluster_key == cluster_key_of(cluster)


def cluster_key_of(shape: Shape) -> str:
    """Encode a shape without its size, because cases define their own number of nodes and workers."""
    return replace(shape, nodes=1, nproc_per_node=1).to_json()


_INVALID = "invalid"
"""Key of the error in place of a scenario's own values."""


def open_or_report(path: Path) -> Scenario:
    """Load a scenario; if its file is invalid, return one that only has the error, so that the others still run."""
    try:
        return open_scenario(path)
    except ScenarioError as error:
        source = path.absolute()
        return Scenario(name=make_slug(path.stem), source=source, script=source, extra={_INVALID: error})


STATUSES = ("passed", "flaky", "failed", "hung", "timeout", "error", "skipped")


class Outcome(Frozen):
    """The outcome of one case."""

    case: Case
    attempts: tuple[RunAttempt, ...] = ()
    """All except the last failed; empty if the case cannot run."""

    @classmethod
    def without_run(cls, case: Case) -> Outcome:
        """Return the outcome of a case that cannot run: it was skipped, or its file is invalid."""
        error = case.scenario.extra.get(_INVALID)
        return cls(case=case, attempts=(RunAttempt.failed(case.scenario, error),) if error else ())

    @property
    def status(self) -> str:
        """The last verdict; `flaky` if it passed only on a retry."""
        if not self.attempts:
            return "skipped"
        return "flaky" if self.last.passed and len(self.attempts) > 1 else self.last.verdict

    @property
    def last(self) -> Result:
        """Result of the last attempt; an empty one if the case cannot run."""
        return self.attempts[-1].result if self.attempts else Result(verdict="passed", scenario=self.case.scenario.name)

    @property
    def decisive(self) -> RunAttempt:
        """The most informative attempt: the last, or for a flaky case the last one that failed."""
        return self.attempts[-2] if self.status == "flaky" else self.attempts[-1]

    @property
    def good(self) -> bool:
        """Whether it needs no attention."""
        return self.status in ("passed", "skipped")

    @property
    def exit_code(self) -> int:
        """Exit code of the last attempt."""
        return self.last.exit_code

    @property
    def took_s(self) -> float:
        """Seconds of all attempts."""
        return sum(attempt.took_s for attempt in self.attempts)

    @property
    def reason(self) -> str:
        """Why it did not pass at once, or how it passed, in one sentence."""
        if not self.attempts:
            return self.case.skipped
        before = f"passed in attempt {len(self.attempts)}; earlier: " if self.status == "flaky" else ""
        return before + self.decisive.result.reason

    def to_json(self) -> dict[str, Any]:
        """Convert the outcome to plain data."""
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
    """The outcome of a suite."""

    suite: str
    """Its name, which the records of its runs contain."""
    outcomes: tuple[Outcome, ...]
    """Of the cases that ran or cannot run, in the order of the cases."""
    planned: int
    """Number of planned cases."""
    clusters: int = 0
    """Number of clusters that ran in parallel."""
    began: float = 0.0
    """Unix time."""
    duration_s: float = 0.0
    seed: int | None = None
    stopped: str = ""
    """Why the rest did not run; empty if all ran."""
    stop_code: int = 0
    """Exit code of the reason: 130 interrupted, 3 no engine."""

    @property
    def counts(self) -> dict[str, int]:
        """Number of outcomes by status, without zeros."""
        count = Counter[str](outcome.status for outcome in self.outcomes)
        return {status: count[status] for status in STATUSES if count[status]}

    @property
    def not_run(self) -> int:
        """Number of cases that did not run although they could."""
        return self.planned - len(self.outcomes)

    @property
    def bad(self) -> Sequence[Outcome]:
        """Outcomes that need attention, including flaky ones."""
        return [outcome for outcome in self.outcomes if not outcome.good]

    @property
    def listed_failures(self) -> Sequence[Outcome]:
        """Outcomes that need attention; none if the suite repeats cases, because then the rates show them."""
        return () if self.repeated else self.bad

    @property
    def records(self) -> list[Record]:
        """For each case that ran, the record of the last attempt."""
        return [Record(path=one.last.path) for one in self.outcomes if one.last.path is not None]

    @property
    def exit_code(self) -> int:
        """The highest exit code; a flaky or skipped case counts as passed."""
        return max((self.stop_code, *(outcome.exit_code for outcome in self.outcomes)))

    @property
    def repeated(self) -> bool:
        """Whether cases ran more than once."""
        return any(outcome.case.repetitions > 1 for outcome in self.outcomes)

    def to_json(self) -> dict[str, Any]:
        """Convert the summary to plain data."""
        named = ("suite", "exit_code", "counts", "planned", "not_run", "stopped", "clusters", "seed")
        return {
            "kind": "summary",
            **{name: getattr(self, name) for name in named},
            "duration_s": round(self.duration_s, 6),
            "rates": [rate.to_json() for rate in compute_rates(self.outcomes)] if self.repeated else [],
        }


_VARIES = re.compile(
    r"\d+(?:[.,]\d+)*\s?(?:µs|ms|s|h|m(?: \d+s)?|B|kB|MB|GB|KiB|MiB|GiB|TB)\b|0x[0-9a-f]+|\b\d+\.\d+(?:e[+-]?\d+)?\b"
    r"|(?<=\[pid )\d+|(?<=port )\d+|(?<=:)\d{4,5}\b"
)
"""What differs between runs with the same failure: times, sizes, addresses, ports, measured numbers."""


class Kind(Frozen):
    """One way in which repetitions of a case did not pass."""

    status: str
    reason: str
    """Reason of the first; the others differ at most in times, sizes, addresses, and measured numbers."""
    count: int
    seeds: tuple[int, ...]
    """Seeds of all of them."""
    record: str | None
    """Record of the first."""


class Rate(Frozen):
    """The outcome of all repetitions of one case."""

    name: str
    ran: int
    failed: int
    """How many did not pass at the first attempt."""
    kinds: tuple[Kind, ...]
    """The most frequent first."""

    @property
    def part(self) -> float:
        """Part of the repetitions that failed."""
        return self.failed / self.ran

    def to_json(self) -> dict[str, Any]:
        """Convert the rate to plain data."""
        return {**vars(self), "part": self.part, "kinds": [*map(vars, self.kinds)]}


def compute_rates(outcomes: Iterable[Outcome]) -> list[Rate]:
    """Compute the rate of each case that ran, in the order in which they first ran."""
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
    """Mask what differs between runs with the same failure."""
    return _VARIES.sub("…", reason)


_GRAMMAR = (ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.Constant)


def parse_filter(expression: str) -> Callable[[Case], bool]:
    """Parse a filter such as `scatter and not nodes=5`, ignoring case, into a predicate for cases.

    Raises:
        UsageError: It is not such an expression.
    """
    here = Path.cwd()

    def fill_in(name: str) -> str:
        """Replace each word by whether a name contains it: `True and not False`."""
        text, keep = " ".join(expression.lower().split()), ("and", "or", "not")
        return re.sub(r"[^\s()]+", lambda word: word[0] if word[0] in keep else str(word[0] in name), text)

    def matches(case: Case) -> bool:
        path = case.scenario.source or case.scenario.script
        file = path.relative_to(here) if path.is_relative_to(here) else path.name  # `-k home` means no folder above
        return bool(eval(fill_in(f"{file} {case.id}".lower())))  # noqa: S307 - it is as simple as _GRAMMAR

    try:
        is_valid = all(isinstance(node, _GRAMMAR) for node in ast.walk(ast.parse(fill_in(""), mode="eval")))
    except (SyntaxError, RecursionError, MemoryError):
        is_valid = False
    if not is_valid:
        hint = "allowed: words of names or files with and, or, not, and brackets, such as 'scatter and not nodes=5'"
        raise UsageError(f"-k {expression!r} is invalid", hint)
    return matches


_SEED = "LAB_SEED"
"""Variable with the seed of a script."""


class Matrix(Frozen):
    """The dimensions that each scenario runs with; an empty dimension is left to the scenario."""

    nodes: tuple[int, ...] = ()
    nproc_per_node: tuple[int, ...] = ()
    backend: tuple[str, ...] = ()
    image: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, values in vars(self).items():
            if double := [str(value) for value, count in Counter(values).items() if count > 1]:
                raise UsageError(f"{_option(name)} names {join_words(double)} more than once")
        for backend in self.backend:
            check_backend(backend)

    def cells(self) -> Iterator[dict[str, Any]]:
        """Yield each combination of dimensions by name."""
        named = {name: values for name, values in vars(self).items() if values}
        for values in product(*named.values()):
            yield dict(zip(named, values, strict=True))


class SuiteRequest(Frozen):
    """What a user requests of a suite."""

    scenarios: Sequence[Scenario]
    matrix: Matrix = Matrix()  # frozen
    only: str = ""
    """A filter for names and files of cases, see `parse_filter`; empty: all."""
    engine: str | Engine = "auto"
    name: str | None = None
    """Name of the cluster; None: that of the current folder."""
    shape: Mapping[str, Any] = field(default_factory=dict)
    """Requested fields of the cluster's shape."""
    options: RunOptions = RunOptions()  # frozen
    """Options of each run."""
    jobs: int | None = None
    """Most clusters in parallel; None: as many as the machine supports."""
    retries: int = 0
    """How often a failed case is retried."""
    repeat: int = 1
    shuffle: bool = False
    """Whether the order is random."""
    seed: int | None = None
    """Seed of the order, and of the first repetition; None: a random one if one is needed."""
    most_failures: int | None = None
    """After this many failures no more cases start; None: all run."""


def make_cases(
    asked: SuiteRequest, engine: str = "", usual: Shape | None = None, seed: int | None = None
) -> list[Case]:
    """Make the cases that the filter selects, in the order of the scenarios, repetition by repetition.

    Args:
        asked: The request; scenarios of the same name differ in their files.
        engine: Name of the engine; empty: not known yet.
        usual: Shape of an existing cluster, for scenarios that do not declare their size.
        seed: Seed of the first repetition, each later one has the next; None: scripts get none.

    Raises:
        UsageError: There are none.
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
        if seed is not None:  # the scenario's own values win
            own = seed + repetition - 1
            env = {_SEED: str(own), **case.scenario.env}
            one = replace(one, seed=own, scenario=replace(case.scenario, env=env))
        cases.append(one)
    chosen = list(filter(parse_filter(asked.only), cases)) if asked.only else cases
    if not chosen:
        raise UsageError(f"-k {asked.only!r} matches none of {len(cases)} cases", "--list shows them all")
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
        skipped=why_not or (explain_missing_gpus(shape.gpus, nodes) if shape.gpus else ""),
    )


def _impossible(scenario: Scenario, world_size: int, cell: Mapping[str, Any], engine: str) -> str:
    """Explain why a scenario cannot run in this cell; empty if it can."""
    if error := scenario.extra.get(_INVALID):
        return str(error)
    backend = cell.get("backend") or scenario.backend
    find_lacking = find_hook("lacking") if backend else None
    if find_lacking and (missing := find_lacking(scenario, backend)):
        return str(missing)
    beyond = find_hook("beyond") if scenario.extra else None  # few scenarios have faults
    if beyond and (problem := beyond(scenario, engine)):
        return f"its scenario has the fault {problem}"
    expect = scenario.expect
    by_rank = (*expect.by_rank, *(notes for notes in expect.notes.values() if is_per_rank(notes)))
    named = {*chain.from_iterable(by_rank), *([] if expect.culprit is None else [expect.culprit])}
    absent = [rank for rank in named if rank >= world_size]
    if absent and ("nodes" in cell or "nproc_per_node" in cell):
        here = f"the run has {format_count(world_size, 'rank')}"
        return f"it has expectations for {name_ranks(absent)}, but {here}"
    return ""


def _names(scenarios: Sequence[Scenario]) -> list[str]:
    """Name each scenario; if several have the same name, add the folder or file."""
    count = Counter(scenario.name for scenario in scenarios)
    named = ((scenario.name, scenario.source or scenario.script) for scenario in scenarios)
    names = [name if count[name] == 1 else f"{file.parent.name}/{file.stem}" for name, file in named]
    return [name if names.count(name) == 1 else f"{name}-{at}" for at, name in enumerate(names, start=1)]


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
