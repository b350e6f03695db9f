"""Values that are wrong though nothing fails: results that no inputs give, NaN, outliers, the same from all ranks."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import ne
from typing import Any, NamedTuple

from lab.diagnosis.ends import lines_of
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding, FindingKind, OddValues, SameValues, WrongElement, WrongResult, majority
from lab.trace.clashes import clash_in
from lab.trace.expected import Number, compared, is_copy, is_outside, output_parts
from lab.trace.model import Buffer, Call, calls_within
from lab.trace.read import wait_after
from lab.trace.steps import Step

# -- results that are not what their operation should have given: computed anew from what all ranks brought

MOST_STEPS = 5000
"""Steps that are looked at."""


class _Wrong(NamedTuple):
    """An output that is not what it should be."""

    call: Call
    tensor: int
    element: int | None
    """The first wrong one; None where it is only known that the tensor as a whole is."""
    got: Any = None
    expected: Number | None = None


def find_wrong_results(evidence: Evidence) -> list[Finding]:
    """Steps that gave ranks something else than they should have, those from the same lines together."""
    found: dict[tuple[str, ...], list[tuple[Step, list[_Wrong]]]] = {}
    for step in islice(evidence.steps, MOST_STEPS):
        wrongs = wrong_results(step) if clash_in(step) is None else []
        if wrongs:
            lines = tuple(sorted({call.source for call in step.calls.values()}))
            found.setdefault((step.op, *lines), []).append((step, wrongs))
    return [_wrong_result(*steps[0], len(steps), evidence) for steps in found.values()]


def wrong_results(step: Step) -> list[_Wrong]:
    """The first wrong output of each rank, where all ranks came and it is plain what each should have got."""
    if step.missing:
        return []
    calls = [call for call in step.calls.values() if call.state == "completed" and not call.late]
    return [wrong for call in calls for wrong in islice(_wrong_outputs(step, call), 1)]


def _wrong_outputs(step: Step, call: Call) -> Iterator[_Wrong]:
    if call.operation.sends:
        return
    for tensor, (buffer, parts) in enumerate(zip(call.outputs, output_parts(step, call), strict=True)):
        if buffer.values is not None and len(buffer.values) == buffer.count:
            for element, (expected, wrong) in enumerate(compared(step, parts, buffer.dtype, buffer.values)):
                if wrong:
                    yield _Wrong(call, tensor, element, buffer.values[element], expected)
                    break
        elif is_copy(step, buffer, parts) is False or is_outside(step, buffer, parts):
            yield _Wrong(call, tensor, None)


def _wrong_result(step: Step, wrongs: list[_Wrong], times: int, evidence: Evidence) -> Finding:
    ranks = [wrong.call.rank for wrong in wrongs]
    right = [rank for rank in step.calls if rank not in ranks]
    handles = [wrong.call for wrong in wrongs if wrong.call.hands_out]
    waits = [wait for call in handles if (wait := wait_after(evidence.trace.ranks[call.rank], call)) is not None]
    changers, outputs = _who_changed(step, evidence), wrongs[0].call.outputs
    facts = WrongResult(
        wrong_ranks=tuple(ranks),
        first=wrong_element(wrongs[0]),
        at=lines_of(step.calls.values()),
        handles=bool(handles),
        waits_at=tuple(wait.source for wait in waits),
        alike=len(outputs) if _all_alike(outputs) else 0,
        again=times - 1,
        ranks=changers,
        others=tuple(rank for rank in (*ranks, *right) if rank not in changers),
        step=step.title,
        lines=(*(wrong.call.source for wrong in wrongs), *(wait.source for wait in waits)),
    )
    return Finding(kind=FindingKind.CHANGED_BEFORE_WAIT if handles else FindingKind.WRONG_RESULT, facts=facts)


def _who_changed(step: Step, evidence: Evidence) -> tuple[int, ...]:
    """Ranks that had changed a tensor of their call before they waited for it; nobody where all or none had.

    Parts of one tensor are taken for changed when any of them is, as all ranks may do rightly.
    """
    found = []
    for rank, call in sorted(step.calls.items()):
        trace = evidence.trace.ranks[rank]
        begun = [wait.changed for wait in trace.waits if wait.changed is not None and wait.changed <= call.begin]
        found += [rank] if any(calls_within(trace.calls, since, call.begin)[0] is call for since in begun) else []
    return tuple(found) if len(found) < len(step.calls) else ()


def wrong_element(wrong: _Wrong) -> WrongElement:
    """What stands where, for a finding."""
    return WrongElement(
        rank=wrong.call.rank,
        tensor=wrong.tensor,
        tensors=len(wrong.call.outputs),
        element=wrong.element,
        reduces=wrong.call.operation.reduces,
        got=wrong.got,
        expected=wrong.expected,
    )


def _all_alike(outputs: tuple[Buffer, ...]) -> bool:
    values = [buffer.values for buffer in outputs]
    return len(values) > 1 and values[0] is not None and all(value == values[0] for value in values)


# -- ranks that bring to a reduction what spoils it for everybody: NaN, or values far from all that were brought there

_ADDS = ("SUM", "AVG")
_ARITHMETIC = (*_ADDS, "PRODUCT", "PREMUL_SUM")
"""Reductions of which NaN makes NaN."""
_LEAST_BEFORE = 2
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
            return [_odd_values(FindingKind.NONFINITE, OddValues(how="nan"), step, guilty)]
        found = lines.setdefault(_line_of(step), _Line()).look(step)
        if found is not None:
            return [found]
    return _departures(evidence)


def _spoils(step: Step) -> bool:
    """Whether NaN gets into what a reduction gives; one that only compares may drop it, which its results show."""
    results = [result for call in step.calls.values() for result in call.outputs if _is_recorded(result)]
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
        if len(self.largest) < _LEAST_BEFORE or not usual or len(far) != 1 or not rest:
            return None
        if min(self.largest) * _NEAR < usual or max(rest) > _NEAR * usual or not max(rest):
            return None
        facts = OddValues(how="far", value=largest[far[0]], rest=max(rest), usual=usual, steps=len(self.largest))
        return _odd_values(FindingKind.OUTLIER, facts, step, far)


def _departures(evidence: Evidence) -> list[Finding]:
    """One rank that once brought something else to a line where all ranks brought the same before and after."""
    by_line: dict[tuple[str, str, int], list[tuple[Step, dict[int, Hashable | None]]]] = {}
    for step in evidence.steps:
        if step.operation.reduces and len(step.calls) > _LEAST_BEFORE and not step.missing:
            told = {rank: brought(call) for rank, call in step.calls.items()}
            if None not in told.values():
                by_line.setdefault(_line_of(step), []).append((step, told))
    found = []
    for steps in by_line.values():
        places = [place for place, (_, told) in enumerate(steps) if len(set(told.values())) > 1]
        before = {next(iter(told.values())) for _, told in steps[: places[0] if places else 0]}
        step, told = steps[places[0]] if places else steps[0]
        _, odd = majority(told)
        if len(places) == 1 and len(before) > _LEAST_BEFORE and len(odd) == 1:
            facts = OddValues(how="other", steps=len(steps) - 1)
            found.append(_odd_values(FindingKind.OUTLIER, facts, step, odd))
    return found


def _line_of(step: Step) -> tuple[str, str, int]:
    """Steps at the same line, of tensors of the same size."""
    call = next(iter(step.calls.values()))
    return step.op, call.source, sum(buffer.count for buffer in call.inputs)


def _odd_values(kind: FindingKind, told: OddValues, step: Step, ranks: Sequence[int]) -> Finding:
    others = tuple(rank for rank in sorted(step.calls) if rank not in ranks)
    lines = tuple(step.calls[rank].source for rank in (*ranks, *others))
    at = lines_of(step.calls[rank] for rank in ranks)
    return Finding(
        kind=kind, facts=replace(told, at=at, ranks=tuple(ranks), others=others, step=step.title, lines=lines)
    )


def _is_recorded(buffer: Buffer) -> bool:
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


# -- reductions to which all ranks bring the same: the same data everywhere, or gradients that were reduced already

_LEAST_STEPS = 2


def find_same_values(evidence: Evidence) -> list[Finding]:
    """For each line whose reductions of floats brought nothing but the same from all ranks: that it was so."""
    by_line: dict[tuple[str, str], list[tuple[Step, Hashable | None]]] = {}
    for step in evidence.steps:
        if step.operation.reduces and len(step.calls) > 1 and not step.missing:
            told = [brought(call) for call in step.calls.values()]
            if None in told:
                continue  # counts, flags, and what is too plain to say anything
            line = next(iter(step.calls.values())).source
            by_line.setdefault((step.op, line), []).append((step, told[0] if len(set(told)) == 1 else None))
    alike = {
        line: steps
        for line, steps in by_line.items()
        if all(told is not None for _, told in steps) and len({told for _, told in steps}) >= _LEAST_STEPS
    }
    return [_same_values([step for step, _ in steps], len(alike) < len(by_line)) for steps in alike.values()]


def brought(call: Call) -> Hashable | None:
    """What a call brought, so that equal things are equal; None where that would say nothing."""
    told = tuple(_content(buffer) for buffer in call.inputs)
    return told if call.reduce_op in _ADDS and told and any(one is not None for one in told) else None


def _content(buffer: Buffer) -> Hashable | None:
    if not buffer.dtype.startswith(("float", "bfloat")):
        return None
    if buffer.values is not None:
        kinds = {*map(type, buffer.values)}
        numbers = buffer.values if kinds == {float} else [one for one in buffer.values if not isinstance(one, str)]
        return tuple(buffer.values) if list not in kinds and _varied(numbers) else None  # no floats are pairs
    summary = buffer.summary or {}
    if not summary.get("hash") or summary.get("min") == summary.get("max"):
        return None
    return tuple(str(summary.get(key)) for key in ("n", "hash", "norm", "min", "max"))


def _varied(numbers: Sequence[float]) -> bool:
    """Whether numbers differ from each other and are not all whole: neither ones nor counts."""
    return any(number % 1 for number in numbers) and any(number != numbers[0] for number in numbers)


def _same_values(steps: list[Step], some_differ: bool) -> Finding:
    first, calls = steps[0], list(steps[0].calls.values())
    at = lines_of(calls)
    facts = SameValues(
        steps=len(steps),
        op=first.op,
        gradients=calls[0].phase == "backward",
        at=at,
        others_differ=some_differ,
        others=tuple(first.calls),
        step=first.title,
        lines=at,
    )
    return Finding(kind=FindingKind.SAME_VALUES, facts=facts)
