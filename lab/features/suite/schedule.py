"""Which case is next on which cluster, how large clusters are, and how long scenarios took earlier."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab.engine.doctor import AGENT_BYTES, WORKER_BYTES
from lab.features.suite.outcome import Case
from lab.plan.cluster import Shape
from lab.record.read import Record
from lab.words import format_bytes, plural

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


@dataclass(frozen=True)
class Jobs:
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


@dataclass
class Pace:
    """How long cases and clusters have taken so far in a suite, and earlier."""

    known_s: Mapping[str, float]
    """What scenarios took in earlier suites, by the name of each."""

    def __post_init__(self) -> None:
        self._took_s: list[float] = []
        self.make_s: float | None = None
        """What making the slowest cluster took; None: none is made yet."""

    def took(self, seconds: float) -> None:
        """A case has ended."""
        self._took_s.append(seconds)

    def made(self, seconds: float) -> None:
        """A cluster was made."""
        self.make_s = max(seconds, self.make_s or 0.0)

    def left_s(self, cases: Iterable[Case], running_s: Sequence[float]) -> float:
        """What these will take, one after the other; those that run now have taken so long already."""
        seen = [*self._took_s, *running_s]
        usual = sum(seen) / len(seen) if seen else _GUESS_S
        return sum(self.known_s.get(case.scenario.name, usual) for case in cases)

    def pays(self, cases: Iterable[Case], running_s: Sequence[float], workers: int) -> bool:
        """Whether a further cluster beside those of so many workers saves more time than making it costs."""
        if workers == 0:
            return True
        return self.make_s is not None and self.left_s(cases, running_s) / workers > WORTH_IT * self.make_s


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
