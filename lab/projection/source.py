"""A run as it is projected from: its program, what its calls took, and the cores that its ranks shared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.errors import LabError
from lab.projection.contention import Clock, Machine, machine_of
from lab.projection.costs import LIBRARIES
from lab.projection.fitted import Sample, samples_of
from lab.projection.program import OPTIMIZER, Program, data_on_its_way, own_work, program_of
from lab.trace.model import Trace
from lab.trace.steps import match
from lab.trace.timing import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A run on record, as far as it is needed."""

    run: str
    trace: Trace
    program: Program
    samples: Sequence[Sample]
    library: str
    """What carried its bytes, as `lab.projection.costs` names it."""
    machine: Machine | None
    """That all its ranks shared; None where they had several machines, or the record does not tell."""


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
    own, moving = own_work(trace), data_on_its_way(steps)
    machine = _shared_machine(trace, own, moving)
    clock = Clock([*own, *moving], machine)
    program = program_of(trace, steps, clock)
    if program is None:
        raise LabError(
            f"{cannot}: it has no two training steps in which all ranks called the same and were done",
            "what comes before the first step of the optimizer does not count: it takes three steps, better ten",
        )
    if not program.transfers:
        raise LabError(
            f"{cannot}: its ranks do not communicate in their training steps",
            "a run of one rank tells nothing of a network; run it with --nodes 2",
        )
    backends = [group.backend for group in trace.groups.values() if group.backend]
    return Source(
        run=run,
        trace=trace,
        program=program,
        samples=samples_of(steps, clock, program.settled),
        library=next((name for name in LIBRARIES for backend in backends if name in backend), "gloo"),
        machine=machine,
    )


def _shared_machine(trace: Trace, own: Sequence[Span], moving: Sequence[Span]) -> Machine | None:
    had = [rank.cores for rank in trace.ranks.values()]
    counts = [cores.count for cores in had if cores.count]
    if len({cores.kernel for cores in had}) > 1 or not counts:
        return None
    ran, queued = sum(cores.ran_s for cores in had), sum(cores.queued_s for cores in had)
    if not ran:
        return Machine(min(counts))
    trained = min(
        mark.end for rank in trace.ranks.values() for mark in rank.marks if mark.name == OPTIMIZER and mark.end
    )
    return machine_of([span for span in own if span[0] >= trained], moving, min(counts), ran / (ran + queued))
