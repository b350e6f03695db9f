"""The network that a record shows: alpha and bandwidth for each operation, fitted from its own calls."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from lab.operations import operation
from lab.projection.contention import Clock
from lab.projection.costs import Cost, Layout, Pattern, choices, pattern_of
from lab.projection.program import lane_of
from lab.trace.alpha_beta import Line, line_through
from lab.trace.steps import Step
from lab.trace.traffic import size_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What was measured of the calls of one operation with one size in groups of so many ranks."""

    op: str
    ranks: int
    bytes: float
    seconds: float
    """Median, from when the last rank had entered and what was before it was over; on cores of its own."""
    count: int
    each: tuple[float, ...] = ()
    """What each of those took that are in the steps of the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What fits the calls of one operation."""

    op: str
    library: str
    algorithm: str
    line: Line
    samples: tuple[Sample, ...]
    shared: bool
    """Whether it was fitted to all operations together, as this one alone does not tell alpha from bandwidth."""

    @property
    def error(self) -> float:
        """Root of the mean square of its relative errors."""
        return self.line.error

    @property
    def spread(self) -> tuple[float, ...]:
        """What each call took, as a part of what it ought to have taken: it may be much more, now and then."""
        return tuple(each / ought for sample, ought in self._ought() for each in sample.each if ought > 0)

    def _ought(self) -> Iterator[tuple[Sample, float]]:
        for sample in self.samples:
            cost = recorded_cost(sample.op, sample.ranks, sample.bytes, self.library)
            yield sample, self.line.seconds(cost.rounds, cost.bytes)


def samples_of(steps: Sequence[Step], clock: Clock, settled: Collection[int] = ()) -> list[Sample]:
    """By operation, ranks and size; the first of each is left out where others follow. `settled`: those of the program.

    Of messages only those count that were waited for, if there are any: of one that is fetched late nobody knows how
    long it took.
    """
    taken: dict[tuple[str, int, int], list[tuple[bool, bool, float]]] = defaultdict(list)
    free: dict[str, float] = {}
    for step in sorted((step for step in steps if step.state == "completed"), key=lambda step: step.ready or 0.0):
        receiver = step.calls.get(step.destination) if step.message and step.destination is not None else None
        ends = [call.end for call in ((receiver,) if receiver is not None else step.calls.values())]
        told = [end for end in ends if end is not None]
        if step.ready is None or len(told) < len(ends):
            continue
        lane, ranks = lane_of(step), len(step.expected)
        ready, before = step.ready, free.get(lane, -math.inf)
        seconds = sum(clock.between(max(ready, before), end) for end in told) / len(told)
        free[lane] = max(*told, before)
        if ranks > 1 and seconds > 0:
            late = receiver is not None and receiver.begin == ready
            taken[step.op, ranks, size_of(step)].append((late, step.number in settled, seconds))
    found = []
    for (op, ranks, size), all_of_it in sorted(taken.items()):
        measured = [one for one in all_of_it if not one[0]] or all_of_it
        kept = [seconds for _, _, seconds in measured[1:] or measured]
        each = tuple(seconds for _, within, seconds in measured if within)
        found.append(Sample(op=op, ranks=ranks, bytes=size, seconds=median(kept), count=len(kept), each=each))
    return found


def fit_all(samples: Iterable[Sample], library: str) -> dict[str, Fit]:
    """By operation. Where one alone does not tell alpha from bandwidth, it has those of all together."""
    by_op: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_op[sample.op].append(sample)
    together = [sample for of_op in by_op.values() for sample in of_op]
    fits = {}
    for op, of_op in by_op.items():
        alone = _tells_both(of_op, library)
        used = of_op if alone else together
        fits[op] = Fit(
            op=op,
            library=library,
            algorithm=recorded_algorithm(op, library),
            line=_through(used, library),
            samples=tuple(of_op),
            shared=not alone and len(by_op) > 1,
        )
    return fits


def recorded_algorithm(op: str, library: str) -> str:
    """What the library takes where the ranks of a record are: the first that it has."""
    return next(iter(choices(library, pattern_of(operation(op)), Layout(2))))


def recorded_cost(op: str, ranks: int, size: float, library: str) -> Cost:
    """The rounds and bytes of a call of a record."""
    formulas = choices(library, pattern_of(operation(op)), Layout(ranks))
    return next(iter(formulas.values()))(Layout(ranks), size)


def _through(samples: Sequence[Sample], library: str) -> Line:
    costs = [recorded_cost(one.op, one.ranks, one.bytes, library) for one in samples]
    return line_through([one.rounds for one in costs], [one.bytes for one in costs], [one.seconds for one in samples])


def _tells_both(samples: Sequence[Sample], library: str) -> bool:
    """Whether bytes for a round differ enough among them that alpha and bandwidth can be told from one another."""
    if pattern_of(operation(samples[0].op)) is Pattern.BARRIER:
        return True
    costs = [recorded_cost(one.op, one.ranks, one.bytes, library) for one in samples]
    amounts = [one.bytes / one.rounds for one in costs if one.rounds]
    return max(amounts) > 1.5 * min(amounts)


def pooled_error(fits: Iterable[Fit]) -> float:
    """Root of the mean square of the errors at all of their samples."""
    errors = [error for fit in fits for error in fit.line.errors]
    return math.sqrt(sum(error * error for error in errors) / len(errors)) if errors else 0.0
