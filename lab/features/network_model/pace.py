"""How a run trains over its network: the time of a step, what of it is own work, what communication is hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from lab.features.network_model.alpha_beta import Model, fit, timings_of
from lab.features.stragglers.timing import blocked_spans, length
from lab.trace.model import RankTrace, Trace, calls_within
from lab.trace.steps import Step

_STEP = "step"


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The figures of one run; None where its trace does not tell one."""

    models: Sequence[Model]
    step_s: float | None
    """Median time from the end of one optimizer step to the end of the next, of all ranks."""
    own_s: float | None
    """What of that a rank was not held up by calls, median."""
    overlap: float | None
    """The part of the time with calls in flight, during these steps, in which ranks were not held up by them."""
    modelled_s: float | None
    """What the model says that the all_reduces of such a step take, one after the other; median."""

    @property
    def bounds_s(self) -> tuple[float, float] | None:
        """Between what the model has a step lie: all communication hidden behind the own work, and none of it."""
        if self.own_s is None or self.modelled_s is None:
            return None
        return max(self.own_s, self.modelled_s), self.own_s + self.modelled_s


@dataclass(frozen=True)
class _Period:
    seconds: float
    own: float
    flying: float
    hidden: float
    modelled: float | None


def pace_of(trace: Trace, steps: Sequence[Step]) -> Pace:
    """The figures of a run."""
    models = fit(timings_of(steps))
    step_of = {(call.rank, call.index): step for step in steps for call in step.calls.values()}
    by_ranks = {model.ranks: model for model in models}
    periods = [one for rank in trace.ranks.values() for one in _periods(rank, step_of, by_ranks)]
    flying = sum(one.flying for one in periods)
    modelled = [one.modelled for one in periods if one.modelled is not None]
    return Pace(
        models=models,
        step_s=median(one.seconds for one in periods) if periods else None,
        own_s=median(one.own for one in periods) if periods else None,
        overlap=sum(one.hidden for one in periods) / flying if flying else None,
        modelled_s=median(modelled) if modelled else None,
    )


def _periods(rank: RankTrace, step_of: dict[tuple[int, int], Step], models: dict[int, Model]) -> list[_Period]:
    """The time from each optimizer step of a rank to its next one."""
    ends = sorted(mark.end for mark in rank.marks if mark.name == _STEP and mark.end is not None)
    spans = blocked_spans(rank)
    found = []
    for begin, end in pairwise(ends):
        calls = [call for call in calls_within(rank.calls, begin, end) if call.end is not None]
        within = (spans[call.index] for call in calls if call.index in spans)
        held = length((max(one, begin), min(other, end)) for one, other in within)
        flying = length((call.begin, min(call.end or end, end)) for call in calls)
        reduces = [(call, step_of.get((rank.rank, call.index))) for call in calls if call.op == "all_reduce"]
        told = [models[len(step.group.ranks)].seconds(call.bytes)
                for call, step in reduces if step is not None and len(step.group.ranks) in models]  # fmt: skip
        modelled = sum(told) if told and len(told) == len(reduces) else None
        found.append(_Period(end - begin, end - begin - held, flying, max(0.0, flying - held), modelled))
    return found
