"""How a run trains over its network: the alpha-beta model of its all_reduces, step times, hidden communication.

A ring of n ranks reduces a tensor of S bytes in 2 (n-1) rounds, and every rank sends S/n bytes in each round. A round
costs alpha seconds plus the time for its bytes at B bytes a second (R. Thakur, R. Rabenseifner, W. Gropp, *Optimization
of Collective Communication Operations in MPICH*, 2005): T(S) = 2 (n-1) alpha + 2 (n-1)/n S / B. gloo uses a ring by
default. B is the bus bandwidth that nccl-tests would show for an infinitely large tensor; for S bytes it shows 2
(n-1)/n S / T(S).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from statistics import median
from typing import Any

from lab.features.stragglers.timing import blocked_spans, covered_s
from lab.features.traffic.traffic import bus_factor, measure_duration, size_of
from lab.frozen import Frozen
from lab.operations import get_operation
from lab.report.style import Style, table_text
from lab.trace.model import RankTrace, Trace, calls_within
from lab.trace.steps import Step
from lab.words import NONE, format_bytes, format_duration, format_rate, group_pairs

_OP = "all_reduce"


class Timing(Frozen):
    """Measured times of the all_reduces of one size in groups of this many ranks."""

    ranks: int
    bytes: int
    """Of one rank's tensor."""
    seconds: float
    """Median, from the entry of the last rank to the end of the last."""
    count: int

    @property
    def busbw(self) -> float:
        """Bus bandwidth as nccl-tests defines it, bytes a second."""
        return _bus_bytes(self.ranks, self.bytes) / self.seconds


class Model(Frozen):
    """The model that fits the all_reduces of groups of this many ranks."""

    ranks: int
    alpha_s: float
    """Seconds of one round, independent of its bytes; 0 if it is too short to measure."""
    bandwidth: float
    """Bytes a second that a rank sends."""
    error: float | None
    """Root mean square of its relative errors over the sizes; None if there are only two sizes."""
    worst: float | None
    """The largest relative error."""
    timings: tuple[Timing, ...]
    """The timings that it was fitted to, by size."""

    def seconds(self, size: float) -> float:
        """Return the modelled time of an all_reduce of this many bytes."""
        return 2 * (self.ranks - 1) * self.alpha_s + _bus_bytes(self.ranks, size) / self.bandwidth

    def busbw(self, size: float) -> float:
        """Return the bus bandwidth that nccl-tests would show, in bytes a second."""
        return _bus_bytes(self.ranks, size) / self.seconds(size)


def timings_of(steps: Sequence[Step]) -> list[Timing]:
    """Return the times of all_reduces during which their ranks called nothing else, by ranks and size.

    The first one of a size is left out if others follow. Parallel all_reduces share the network, so their times are not
    comparable. Those during a backward pass share the cores with it: they count only if fewer than two sizes remain
    without them.
    """
    alone = [step for step in _alone(steps) if step.op == _OP]
    undisturbed = _by_size(step for step in alone if all(call.phase != "backward" for call in step.calls.values()))
    return undisturbed if len(undisturbed) > 1 else _by_size(alone)


def _by_size(steps: Iterable[Step]) -> list[Timing]:
    sized = ((len(step.group.ranks), size_of(step), measure_duration(step)) for step in steps)
    seconds = group_pairs(((ranks, size), took) for ranks, size, took in sized if took and size and ranks > 1)
    kept = ((ranks, size, took[1:] or took) for (ranks, size), took in sorted(seconds.items()))
    return [Timing(ranks=ranks, bytes=size, seconds=median(took), count=len(took)) for ranks, size, took in kept]


def fit_models(timings: Sequence[Timing]) -> list[Model]:
    """Fit a model for each number of ranks that has two sizes or more.

    It minimizes the squares of relative errors: small tensors determine alpha, and large ones the bandwidth. No model
    is fitted if time does not grow with size, because the bandwidth is then unknown.
    """
    by_ranks = group_pairs((one.ranks, one) for one in timings)
    models = (_fit(ranks, of_ranks) for ranks, of_ranks in sorted(by_ranks.items()) if len(of_ranks) > 1)
    return [model for model in models if model is not None]


def _fit(ranks: int, timings: Sequence[Timing]) -> Model | None:
    # minimize the sum of ((a x + b y) - 1)^2 with x = rounds / T and y = bytes / T; neither a nor b is negative
    x = [2 * (ranks - 1) / one.seconds for one in timings]
    y = [one.busbw for one in timings]
    xx, yy, xy = _dot(x, x), _dot(y, y), _dot(x, y)
    scale = xx * yy - xy * xy
    alpha, inverse = 0.0, sum(y) / yy
    if scale > 1e-12 * xx * yy:
        alpha, inverse = (sum(x) * yy - sum(y) * xy) / scale, (sum(y) * xx - sum(x) * xy) / scale
    if alpha < 0:
        alpha, inverse = 0.0, sum(y) / yy
    if inverse <= 0:
        return None
    error = worst = None
    if len(timings) > 2:
        errors = [alpha * of_round + inverse * of_byte - 1 for of_round, of_byte in zip(x, y, strict=True)]
        error, worst = math.sqrt(_dot(errors, errors) / len(errors)), max(map(abs, errors))
    return Model(ranks=ranks, alpha_s=alpha, bandwidth=1 / inverse, error=error, worst=worst, timings=tuple(timings))


def _bus_bytes(ranks: int, size: float) -> float:
    return (bus_factor(get_operation(_OP), ranks) or 0.0) * size


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def _alone(steps: Sequence[Step]) -> list[Step]:
    """Return the steps during whose calls none of their ranks had another call in progress."""
    crowded: set[int] = set()
    calls = ((rank, call, number) for number, step in enumerate(steps) for rank, call in step.calls.items())
    timed = ((rank, (call.begin, math.inf if call.end is None else call.end, number)) for rank, call, number in calls)
    for spans in group_pairs(timed).values():
        until, last = -math.inf, -1
        for begin, end, number in sorted(spans):
            if begin < until:
                crowded |= {number, last}
            if end > until:
                until, last = end, number
    return [step for number, step in enumerate(steps) if number not in crowded]


_STEP = "step"


class Pace(Frozen):
    """The figures of one run; None if its trace does not contain one."""

    models: Sequence[Model]
    step_s: float | None
    """Median time from the end of one optimizer step to the end of the next, over all ranks."""
    own_s: float | None
    """Median part of that time in which a rank was not blocked by calls."""
    overlap: float | None
    """During these steps, the part of the time with calls in progress in which ranks were not blocked by them."""
    modelled_s: float | None
    """Median modelled time of the all_reduces of such a step, one after the other."""

    @property
    def bounds_s(self) -> tuple[float, float] | None:
        """Bounds of the modelled step time: all communication hidden behind computation, and none of it."""
        if self.own_s is None or self.modelled_s is None:
            return None
        return max(self.own_s, self.modelled_s), self.own_s + self.modelled_s


def pace_of(trace: Trace, steps: Sequence[Step]) -> Pace:
    """Return the figures of a run."""
    models = fit_models(timings_of(steps))
    step_of = {(call.rank, call.index): step for step in steps for call in step.calls.values()}
    by_ranks = {model.ranks: model for model in models}
    periods = [one for rank in trace.ranks.values() for one in _periods(rank, step_of, by_ranks)]
    seconds, own, flying, hidden, reduced = zip(*periods, strict=True) if periods else [()] * 5
    modelled = [one for one in reduced if one is not None]
    return Pace(
        models=models,
        step_s=median(seconds) if periods else None,
        own_s=median(own) if periods else None,
        overlap=sum(hidden) / sum(flying) if sum(flying) else None,
        modelled_s=median(modelled) if modelled else None,
    )


def _periods(
    rank: RankTrace, step_of: dict[tuple[int, int], Step], models: dict[int, Model]
) -> Iterator[tuple[float, float, float, float, float | None]]:
    """Yield the times between optimizer steps of a rank, in seconds.

    Each item has the total time, computation, time with calls in progress, its hidden part, and the modelled time of
    the all_reduces.
    """
    ends = sorted(phase.end for phase in rank.phases if phase.name == _STEP and phase.end is not None)
    spans = blocked_spans(rank)
    for begin, end in pairwise(ends):
        calls = [call for call in calls_within(rank.calls, begin, end) if call.end is not None]
        within = (spans[call.index] for call in calls if call.index in spans)
        held = covered_s((max(one, begin), min(other, end)) for one, other in within)
        flying = covered_s((call.begin, min(call.end or end, end)) for call in calls)
        reduces = [(call, step_of.get((rank.rank, call.index))) for call in calls if call.op == _OP]
        known = ((call, models.get(len(step.group.ranks))) for call, step in reduces if step is not None)
        estimates = [model.seconds(call.bytes) for call, model in known if model is not None]
        modelled = sum(estimates) if estimates and len(estimates) == len(reduces) else None
        yield end - begin, end - begin - held, flying, max(0.0, flying - held), modelled


_FORMULA = "T(S) = 2 (n-1) α + 2 (n-1)/n S/B, of n ranks and tensors of S bytes; busbw as nccl-tests defines it"
Paces = Mapping[str, Pace]
"""By name of the run."""


def network_json(paces: Paces) -> list[dict[str, Any]]:
    """Return the figures as plain data."""
    return [{"run": run, **asdict(pace), "bounds_s": pace.bounds_s} for run, pace in paces.items()]


def network_text(paces: Paces, style: Style) -> str:
    """Return a table of the runs, and for each run its all_reduces next to the model."""
    parts = [_overview(paces, style)]
    for run, pace in paces.items():
        none = f"{style.paint(run, 'bold')} has no model: it needs all_reduces of two sizes, each alone"
        parts += [_sizes(run, model, style) for model in pace.models] or [none]
    return "\n\n".join([*parts, style.paint(_FORMULA, "dim")])


def _overview(paces: Paces, style: Style) -> str:
    header = ["run", "α", "B", "error", "worst", "step", "model of it", "overlap", "busbw"]
    rows = []
    for run, pace in paces.items():
        between = " to ".join(map(format_duration, pace.bounds_s)) if pace.bounds_s else NONE
        cells, busbw = [NONE] * 4, NONE
        if pace.models:
            model = pace.models[-1]
            cells = [format_duration(model.alpha_s), format_rate(model.bandwidth)]
            cells += map(_percent, (model.error, model.worst))
            busbw = format_rate(model.timings[-1].busbw)
        rows.append([run, *cells, format_duration(pace.step_s), between, _percent(pace.overlap), busbw])
    return table_text(header, rows, style)


def _sizes(run: str, model: Model, style: Style) -> str:
    rows = []
    for one in model.timings:
        off = f"{100 * (model.seconds(one.bytes) / one.seconds - 1):+.1f} %"
        times = [format_duration(one.seconds), format_duration(model.seconds(one.bytes)), off]
        rates = [format_rate(one.busbw), format_rate(model.busbw(one.bytes))]
        rows.append([format_bytes(one.bytes), str(one.count), *times, *rates])
    header = ["all_reduce", "count", "measured", "model", "off", "busbw", "model"]
    return f"{style.paint(run, 'bold')}, {model.ranks} ranks\n{table_text(header, rows, style)}"


def _percent(part: float | None) -> str:
    return NONE if part is None else f"{100 * part:.1f} %"
