"""Trainings whose true times are known: records, and what a step takes, from formulas that projections do not see."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.features.projection.runs import COUNT, tensor
from tests.traces import TraceMaker

CALLS = 3
"""All_reduces of a step, each waited for at once."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What is so of all sizes of a training. All times are in milliseconds."""

    work: float = 20.0
    jitter: float = 0.0
    """Standard deviation of the logarithm of each step's work on each rank."""
    idle: float = 0.0
    """That a rank waits for its device beside its work."""
    alpha: float = 0.05
    per_byte: float = 2e-6
    cores: int | None = None
    """That all ranks share, first come, first served for slices so thin that each has the same part of them."""
    others: float = 0.0
    carrying: float = 0.5
    """Cores that a rank wants while data is on its way."""

    def call(self, ranks: int) -> float:
        """What an all_reduce takes by a ring where there are cores enough."""
        size = 4 * COUNT
        return 2 * (ranks - 1) * self.alpha + 2 * (ranks - 1) / ranks * size * self.per_byte

    def slower(self, wanting: float) -> float:
        """How many times as long it takes what wants so many cores."""
        return 1.0 if self.cores is None else max(1.0, (wanting + self.others) / self.cores)


def simulated(folder: Path, ranks: int, truth: Truth, *, steps: int = 24, seed: int = 0) -> tuple[TraceMaker, float]:
    """A record of so many ranks, and the median of its steps in milliseconds."""
    run = TraceMaker(folder, ranks)
    draw = random.Random(f"{seed} {ranks}")
    own_ran = own_queued = beside_ran = beside_queued = at = 0.0
    taken = []
    call, working, moving = truth.call(ranks), truth.slower(ranks), truth.slower(ranks * truth.carrying)
    for rank in range(ranks):
        if truth.cores is not None:
            run.lines[rank][0]["cores"] = truth.cores
    for _ in range(steps):
        begun = at
        for _ in range(CALLS):
            works = [truth.work / CALLS * draw.lognormvariate(0, truth.jitter) * working for _ in range(ranks)]
            arrived = [at + work + truth.idle / CALLS for work in works]
            over = max(arrived) + call * moving
            for rank in range(ranks):
                run.call(rank, "all_reduce", arrived[rank], over, **tensor("in", COUNT))
            own_ran += truth.work / CALLS
            own_queued += truth.work / CALLS * (working - 1)
            beside_ran += truth.carrying * call
            beside_queued += truth.carrying * call * (moving - 1)
            at = over
        told = {"ran": own_ran, "queued": own_queued, "beside": beside_ran, "beside_queued": beside_queued}
        for rank in range(ranks):
            run.mark(rank, "step", at, at)
            if truth.cores is not None:
                run.line(rank, "cpu", at, **{name: round(1e6 * value) for name, value in told.items()})
        taken.append(at - begun)
    return run, median(taken)
