"""The network that a record shows: alpha and bandwidth for each operation, fitted from its own calls."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from lab.features.network_model.alpha_beta import Line, line_through
from lab.features.projection.costs import Cost, Layout, Pattern, choices, pattern_of
from lab.features.projection.flights import Flight
from lab.features.projection.replay import Clock
from lab.features.traffic.traffic import size_of
from lab.operations import operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What was measured of the calls of one operation with one size in groups of so many ranks."""

    op: str
    ranks: int
    bytes: float
    seconds: float
    """Median, from when the last rank had entered and what was before it was over; on cores of its own."""
    ran_s: float
    """How long the threads that carry them ran for each, in the mean."""
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


def samples_of(flights: Sequence[Flight], clock: Clock, settled: Collection[int], ran: float) -> list[Sample]:
    """By operation, ranks and size; the first of each is left out where others follow.

    Args:
        flights: of a run.
        clock: of its cores.
        settled: numbers of the collectives and messages of its program.
        ran: for what part of the time that they took by the clock the threads that carry them ran.

    Of messages only those count that were waited for, if there are any: of one that is fetched late nobody knows how
    long it took.
    """
    taken: dict[tuple[str, int, int], list[tuple[bool, bool, float]]] = defaultdict(list)
    for flight in flights:
        step = flight.step
        seconds = sum(clock.between(flight.begin, end) for end in flight.ends.values()) / len(flight.ends)
        if seconds > 0:
            within = step.number in settled
            taken[step.op, len(step.expected), size_of(step)].append((flight.late, within, seconds))
    found = []
    for (op, ranks, size), all_of_it in sorted(taken.items()):
        measured = [one for one in all_of_it if not one[0]] or all_of_it
        kept = [seconds for _, _, seconds in measured[1:] or measured]
        each = tuple(seconds for _, within, seconds in measured if within)
        ran_s = ran * sum(kept) / len(kept)
        found.append(
            Sample(op=op, ranks=ranks, bytes=size, seconds=median(kept), ran_s=ran_s, count=len(kept), each=each)
        )
    return found


def fit_all(samples: Iterable[Sample], library: str, crowded: bool = False) -> dict[str, Fit]:
    """By operation. Where one alone does not tell alpha from bandwidth, it has those of all together.

    What is not called in the steps of the program counts only where they do not tell: there are few such calls.
    Where it was crowded, a call costs what its threads ran: its time says how long they were queued for a core.
    """
    if crowded:
        samples = [replace(sample, seconds=sample.ran_s) for sample in samples]
    by_op: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_op[sample.op].append(sample)
    together = [sample for of_op in by_op.values() for sample in of_op]
    fits = {}
    for op, of_op in by_op.items():
        stepping = [sample for sample in of_op if sample.each]
        alone = next((some for some in (stepping, of_op) if some and _tells_both(some, library)), None)
        used = alone or together
        fits[op] = Fit(
            op=op,
            library=library,
            algorithm=recorded_algorithm(op, library),
            line=_through(used, library),
            samples=tuple(of_op),
            shared=alone is None and len(by_op) > 1,
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
