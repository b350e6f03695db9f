"""A run as it is projected from: its program, what its calls took, and the cores that its ranks shared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.errors import LabError
from lab.features.projection.costs import LIBRARIES
from lab.features.projection.fitted import Sample, samples_of
from lab.features.projection.flights import Flight, flights_of
from lab.features.projection.program import OPTIMIZER, Program, own_work, program_of
from lab.features.projection.replay import Clock, Machine, Working, machine_of
from lab.trace.model import Trace
from lab.trace.steps import match
from lab.trace.timing import Span

_MOST_WANTED = 2.0
"""Cores that a rank may want while data is on its way: a thread that carries it, and one that reduces it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A run on record, as far as it is needed."""

    run: str
    trace: Trace
    program: Program
    samples: Sequence[Sample]
    library: str
    """What carried its bytes, as `lab.features.projection.costs` names it."""
    machine: Machine | None
    """That all its ranks shared; None where they had several machines, or the record does not tell."""
    carrying: float
    """How many cores a rank wanted while data was on its way."""
    crowded: bool
    """Whether the threads that carry calls were queued for a core for longer than they ran."""


def source_of(run: str, trace: Trace) -> Source:
    """What there is to be projected of a run.

    Raises:
        LabError: it has no training steps, too few of them, or no communication in them.
    """
    cannot = f"run {run} cannot be projected"
    if not any(mark.name == OPTIMIZER for rank in trace.ranks.values() for mark in rank.marks):
        raise LabError(
            f"{cannot}: it has no training steps",
            "a training step lies between two steps of an optimizer of torch.optim, on every rank",
        )
    steps = match(trace)
    backends = [group.backend for group in trace.groups.values() if group.backend]
    library = next((name for name in LIBRARIES for backend in backends if name in backend), "gloo")
    flights = flights_of(steps, library)
    working = _working(trace, flights)
    machine = _shared_machine(trace, working)
    clock = Clock(working, machine)
    program = program_of(trace, steps, flights, clock, working[0].wanting)
    if program is None:
        raise LabError(
            f"{cannot}: it has no two training steps in which all ranks called the same and were done",
            "what comes before the first step of the optimizer does not count: it takes three steps, better ten",
        )
    if not program.transfers:
        raise LabError(
            f"{cannot}: its ranks do not communicate in their training steps",
            "a run of one rank tells nothing of a network; run it with --nodes 2"
            if len(trace.ranks) == 1
            else "between two steps of an optimizer no rank called a collective, or sent anything",
        )
    return Source(
        run=run,
        trace=trace,
        program=program,
        samples=samples_of(flights, clock, program.settled, _ran(trace, working[1], clock)),
        library=library,
        machine=machine,
        carrying=working[1].wanting,
        crowded=sum(rank.cores.beside.queued_s - rank.cores.beside.ran_s for rank in trace.ranks.values()) > 0,
    )


def _working(trace: Trace, flights: Sequence[Flight]) -> tuple[Working, Working]:
    """The own work of all ranks, and data on its way, each with how many cores it wanted."""
    own, moving = own_work(trace), [span for flight in flights for span in flight.spans]
    had = [rank.cores for rank in trace.ranks.values()]

    def wanting(spans: Sequence[Span], wanted_s: float) -> float:
        told = sum(end - begin for begin, end in _looked_at(spans, trace))
        return wanted_s / told if told and wanted_s else 1.0

    of_own = wanting(own, sum(cores.own.wanted_s for cores in had))
    of_moving = wanting(moving, sum(cores.beside.wanted_s for cores in had))
    return Working(own, min(1.0, of_own)), Working(moving, min(_MOST_WANTED, of_moving))


def _looked_at(spans: Sequence[Span], trace: Trace) -> list[Span]:
    """What of them lies between the first and the last look at how long threads had run."""
    had = [rank.cores.own for rank in trace.ranks.values()]
    first, last = min(own.begin for own in had), max(own.end for own in had)
    return [(max(begin, first), min(end, last)) for begin, end in spans if end > first and begin < last]


def _ran(trace: Trace, moving: Working, clock: Clock) -> float:
    """For what part of the time that calls took by the clock the threads that carry them ran; 1 where nobody knows."""
    told = clock.of(_looked_at(moving.spans, trace))
    ran = sum(rank.cores.beside.ran_s for rank in trace.ranks.values())
    return ran / told if told and ran else 1.0


def _shared_machine(trace: Trace, working: Sequence[Working]) -> Machine | None:
    had = [rank.cores for rank in trace.ranks.values()]
    counts = [cores.count for cores in had if cores.count]
    if len({cores.kernel for cores in had}) > 1 or not counts:
        return None
    ran, wanted = (
        sum(getattr(of, name) for cores in had for of in (cores.own, cores.beside)) for name in ("ran_s", "wanted_s")
    )
    if not wanted:
        return Machine(min(counts))
    trained = min(
        mark.end for rank in trace.ranks.values() for mark in rank.marks if mark.name == OPTIMIZER and mark.end
    )
    settled = [one._replace(spans=[span for span in one.spans if span[0] >= trained]) for one in working]
    return machine_of(settled, min(counts), ran / wanted)
