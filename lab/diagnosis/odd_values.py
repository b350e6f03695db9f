"""Ranks that bring to a reduction what spoils it for everybody: NaN, or values far from all that were brought there."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import ne

from lab.diagnosis.ends import at_lines
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding, majority
from lab.diagnosis.same_values import brought
from lab.trace.model import Buffer, Call
from lab.trace.steps import Step
from lab.words import name_ranks, plural

_ADDS = ("SUM", "AVG")
_ARITHMETIC = (*_ADDS, "PRODUCT", "PREMUL_SUM")
"""Reductions of which NaN makes NaN."""
_LEAST_STEPS = 2
"""So many earlier steps at the same line have to tell what is usual there."""
_FAR = 1e4
"""A value so many times as large as all others is far from them."""
_NEAR = 1e2


def find_odd_values(evidence: Evidence) -> list[Finding]:
    """The first reduction to which a rank brought NaN or an outlier: after it the others have it from there."""
    lines: dict[tuple[str, str, int], _Line] = {}
    for step in evidence.steps:
        if step.message or not step.operation.reduces:
            continue
        guilty = tuple(rank for rank, call in sorted(step.calls.items()) if any(map(_holds_nan, call.inputs)))
        if guilty and _spoils(step):
            sentence = (
                f"{name_ranks(guilty)} brought NaN to {step.title}{_where(step, guilty)}, the first NaN on record"
            )
            return [_finding("nonfinite", f"{sentence}; who gets its result gets NaN.", step, guilty)]
        found = lines.setdefault(_line_of(step), _Line()).look(step)
        if found is not None:
            return [found]
    return _departures(evidence)


def _spoils(step: Step) -> bool:
    """Whether NaN gets into what a reduction gives; one that only compares may drop it, which its results show."""
    results = [result for call in step.calls.values() for result in call.outputs if _told(result)]
    adds = all(call.reduce_op in _ARITHMETIC for call in step.calls.values())
    return adds or not results or any(map(_holds_nan, results))


@dataclass
class _Line:
    """What was brought to the reductions at one line so far."""

    largest: list[float] = field(default_factory=list)
    """The largest value of any rank, by step."""

    def look(self, step: Step) -> Finding | None:
        """Whether one rank brought to this step what is far from everything before and from what the others brought."""
        if step.missing or len(step.calls) < 2 or any(call.reduce_op not in _ADDS for call in step.calls.values()):
            return None
        largest = {rank: _largest(call) for rank, call in step.calls.items()}
        known = {rank: value for rank, value in largest.items() if value is not None}
        if len(known) < len(largest):
            return None
        found = self._far(step, known)
        self.largest.append(max(known.values()))
        return found

    def _far(self, step: Step, largest: dict[int, float]) -> Finding | None:
        usual = max(self.largest, default=0.0)
        far = [rank for rank, value in largest.items() if value > _FAR * usual]
        rest = [value for rank, value in largest.items() if rank not in far]
        if len(self.largest) < _LEAST_STEPS or not usual or len(far) != 1 or not rest:
            return None
        if min(self.largest) * _NEAR < usual or max(rest) > _NEAR * usual or not max(rest):
            return None
        sentence = (
            f"rank {far[0]} brought values up to {largest[far[0]]:.3g} to {step.title}{_where(step, far)}, where the "
            f"others brought at most {max(rest):.3g}, and all at most {usual:.3g} to the "
            f"{plural(len(self.largest), 'step')} before it; who gets its result gets that."
        )
        return _finding("outlier", sentence, step, far)


def _departures(evidence: Evidence) -> list[Finding]:
    """One rank that once brought something else to a line where all ranks brought the same before and after."""
    by_line: dict[tuple[str, str, int], list[tuple[Step, dict[int, Hashable | None]]]] = {}
    for step in evidence.steps:
        if step.operation.reduces and len(step.calls) > _LEAST_STEPS and not step.missing:
            told = {rank: brought(call) for rank, call in step.calls.items()}
            if None not in told.values():
                by_line.setdefault(_line_of(step), []).append((step, told))
    found = []
    for steps in by_line.values():
        places = [place for place, (_, told) in enumerate(steps) if len(set(told.values())) > 1]
        before = {next(iter(told.values())) for _, told in steps[: places[0] if places else 0]}
        step, told = steps[places[0]] if places else steps[0]
        _, odd = majority(told)
        if len(places) == 1 and len(before) > _LEAST_STEPS and len(odd) == 1:
            sentence = (
                f"rank {odd[0]} brought other values than the others to {step.title}{_where(step, odd)}, where all "
                f"brought the same to each of {plural(len(steps) - 1, 'other step')}; who gets its result gets that."
            )
            found.append(_finding("outlier", sentence, step, odd))
    return found


def _line_of(step: Step) -> tuple[str, str, int]:
    """Steps at the same line, of tensors of the same size."""
    call = next(iter(step.calls.values()))
    return step.op, call.source, sum(buffer.count for buffer in call.inputs)


def _where(step: Step, ranks: Sequence[int]) -> str:
    return at_lines(step.calls[rank] for rank in ranks)


def _finding(kind: str, sentence: str, step: Step, ranks: Sequence[int]) -> Finding:
    others = tuple(rank for rank in sorted(step.calls) if rank not in ranks)
    lines = tuple(step.calls[rank].source for rank in (*ranks, *others))
    return Finding(kind=kind, sentence=sentence, ranks=tuple(ranks), others=others, step=step.title, lines=lines)


def _told(buffer: Buffer) -> bool:
    """Whether anything of a tensor's values is on record."""
    return buffer.values is not None or bool(buffer.summary)


def _holds_nan(buffer: Buffer) -> bool:
    if buffer.values is not None:
        return "nan" in buffer.values or any(map(ne, buffer.values, buffer.values))  # it differs from itself
    norm = (buffer.summary or {}).get("norm")
    return norm == "nan" or (isinstance(norm, float) and math.isnan(norm))


def _largest(call: Call) -> float | None:
    """The largest absolute value that a call brought; None where that is not known, or of whole numbers."""
    values = [*_extremes(call.inputs)]
    return max(map(abs, values)) if values and not any(map(math.isnan, values)) else None


def _extremes(buffers: Sequence[Buffer]) -> Iterator[float]:
    for buffer in buffers:
        if not buffer.dtype.startswith(("float", "bfloat")):
            yield math.nan
        summary = buffer.summary or {}
        told = buffer.values if buffer.values is not None else (summary.get("min"), summary.get("max"))
        try:
            yield from map(float, told)
        except (TypeError, ValueError):
            yield math.nan
