"""A run as it is projected from: its program, what its calls took, and the cores that its ranks shared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.errors import LabError
from lab.projection.contention import Clock
from lab.projection.costs import LIBRARIES
from lab.projection.fitted import Sample, samples_of
from lab.projection.program import OPTIMIZER, Program, program_of, working
from lab.trace.model import Trace
from lab.trace.steps import match


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A run on record, as far as it is needed."""

    run: str
    trace: Trace
    program: Program
    samples: Sequence[Sample]
    library: str
    """What carried its bytes, as `lab.projection.costs` names it."""
    cores: int | None
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
    cores = _shared_cores(trace)
    clock = Clock(working(trace, steps) if cores is not None else (), cores)
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
        cores=cores,
    )


def _shared_cores(trace: Trace) -> int | None:
    kernels = {rank.kernel for rank in trace.ranks.values()}
    cores = [rank.cores for rank in trace.ranks.values() if rank.cores]
    return min(cores) if len(kernels) == 1 and cores else None
