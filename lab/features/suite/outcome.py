"""What a suite runs, what came of it, and how often repeated cases came to which end. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

from lab.plan.cluster import Shape
from lab.record.read import Record
from lab.record.result import Result
from lab.spec.scenario import Scenario


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
