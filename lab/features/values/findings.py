"""Values that are wrong though nothing fails: results that no inputs give, NaN, outliers, the same from all ranks."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import ne
from typing import Any, Literal

from lab.diagnosis.ends import lines_of, of_step
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding, Kind, Words, WrongElement, majority
from lab.diagnosis.wording import again, at, render_wrong
from lab.features.values.expected import compared, is_copy, is_outside, output_parts
from lab.trace.clashes import clash_in
from lab.trace.model import Buffer, Call, calls_within
from lab.trace.read import wait_after
from lab.trace.steps import Step
from lab.words import capitalize_first, format_count, name_ranks


class ValueKind(Kind):
    """The kinds of findings of this feature."""

    WRONG_RESULT = "wrong_result"
    CHANGED_BEFORE_WAIT = "changed_before_wait"
    NONFINITE = "nonfinite"
    OUTLIER = "outlier"
    SAME_VALUES = "same_values"


class WrongResult(Finding):
    """A step that gave ranks something else than it should have."""

    wrong_ranks: tuple[int, ...]
    first: WrongElement
    at: tuple[str, ...] = ()
    handles: bool = False
    waits_at: tuple[str, ...] = ()
    alike: int = 0
    """How many tensors hold the same as if they were one; 0 where they do not."""
    again: int = 0
    """In how many other steps it was so."""

    def render(self) -> Words:
        """What stands where it should not, and why."""
        where, who, why = f"{self.step}{at(self.at)}", name_ranks(self.wrong_ranks), ""
        if self.handles and self.waits_at:
            what = (
                f"{capitalize_first(name_ranks(self.ranks))} changed a tensor" if self.ranks else "A tensor was changed"
            )
            why = f"{what} between the call and the wait for its handle{at(self.waits_at)}, before it was done."
        elif self.handles:
            why = "A tensor was changed before the call was done: nobody waited for its handle."
        elif self.alike:
            why = f"All {self.alike} tensors that it filled hold the same, as if they were one."
        return f"{where} did not give {who} what it should have: {render_wrong(self.first)}", why, again(self.again)


class OddValues(Finding):
    """Values that some ranks brought to a reduction and that spoil it."""

    how: Literal["nan", "far", "other"]
    at: tuple[str, ...] = ()
    value: float = 0.0
    rest: float = 0.0
    usual: float = 0.0
    steps: int = 0
    """Before it, or of the same line."""

    def render(self) -> Words:
        """Who brought what, and what the others did."""
        where, gets = f"{self.step}{at(self.at)}", "who gets its result gets"
        what = {
            "nan": f"NaN to {where}, the first NaN on record; {gets} NaN",
            "far": f"values up to {self.value:.3g} to {where}, where the others brought at most {self.rest:.3g}, and "
            f"all at most {self.usual:.3g} to the {format_count(self.steps, 'step')} before it; {gets} that",
            "other": f"other values than the others to {where}, where all brought the same to each of "
            f"{format_count(self.steps, 'other step')}; {gets} that",
        }
        return f"{name_ranks(self.ranks)} brought {what[self.how]}"


class SameValues(Finding):
    """Reductions to which all ranks brought the same."""

    kind: Kind = ValueKind.SAME_VALUES
    steps: int
    op: str
    gradients: bool = False
    at: tuple[str, ...] = ()
    others_differ: bool = False

    def render(self) -> Words:
        """To which steps all brought the same, and why that may be."""
        what = f"each of {format_count(self.steps, self.op)}" if self.steps > 1 else self.step
        why = "all of them have the same data, or what they bring has been reduced before"
        if self.others_differ:
            why = "what they bring has been reduced before, or all of them have the same data"
        phase = " of gradients" if self.gradients else ""
        return f"{name_ranks(self.others)} brought the same values to {what}{phase}{at(self.at)}: as if {why}"


# -- results that are not what their operation should have given: computed anew from what all ranks brought

MOST_STEPS = 5000
"""Steps that are looked at."""


def wrong_results(step: Step) -> list[WrongElement]:
    """The first wrong output of each rank, where all ranks came and it is plain what each should have got."""
    if step.missing:
        return []
    calls = [call for call in step.calls.values() if call.state == "completed" and not call.late]
    return [wrong for call in calls for wrong in islice(_wrong_outputs(step, call), 1)]


def _wrong_outputs(step: Step, call: Call) -> Iterator[WrongElement]:
    if call.operation.sends:
        return
    wrong = partial(WrongElement, rank=call.rank, tensors=len(call.outputs), reduces=call.operation.reduces)
    for tensor, (buffer, parts) in enumerate(zip(call.outputs, output_parts(step, call), strict=True)):
        if buffer.values is not None and len(buffer.values) == buffer.count:
            for element, (expected, is_wrong) in enumerate(compared(step, parts, buffer.dtype, buffer.values)):
                if is_wrong:
                    yield wrong(tensor=tensor, element=element, got=buffer.values[element], expected=expected)
                    break
        elif is_copy(step, buffer, parts) is False or is_outside(step, buffer, parts):
            yield wrong(tensor=tensor, element=None)


def find_wrong_results(evidence: Evidence) -> list[Finding]:
    """Steps that gave ranks something else than they should have, those from the same lines together."""
    by_lines: dict[tuple[str, ...], list[tuple[Step, list[WrongElement]]]] = {}
    for step in islice(evidence.steps, MOST_STEPS):
        wrongs = wrong_results(step) if clash_in(step) is None else []
        if wrongs:
            lines = tuple(sorted({call.source for call in step.calls.values()}))
            by_lines.setdefault((step.op, *lines), []).append((step, wrongs))
    return [_wrong_result(*steps[0], len(steps) - 1, evidence) for steps in by_lines.values()]


def _wrong_result(step: Step, wrongs: list[WrongElement], again: int, evidence: Evidence) -> Finding:
    ranks = tuple(wrong.rank for wrong in wrongs)
    handles = [step.calls[rank] for rank in ranks if step.calls[rank].hands_out]
    waits = [wait for call in handles if (wait := wait_after(evidence.trace.ranks[call.rank], call)) is not None]
    changers, (first, *rest) = _who_changed(step, evidence), [buffer.values for buffer in step.calls[ranks[0]].outputs]
    alike = bool(rest) and first is not None and all(values == first for values in rest)
    return WrongResult(
        kind=ValueKind.CHANGED_BEFORE_WAIT if handles else ValueKind.WRONG_RESULT,
        wrong_ranks=ranks,
        first=wrongs[0],
        at=lines_of(step.calls.values()),
        handles=bool(handles),
        waits_at=tuple(wait.source for wait in waits),
        alike=1 + len(rest) if alike else 0,
        again=again,
        ranks=changers,
        others=tuple(rank for rank in dict.fromkeys((*ranks, *step.calls)) if rank not in changers),
        step=step.title,
        lines=(*(step.calls[rank].source for rank in ranks), *(wait.source for wait in waits)),
    )


def _who_changed(step: Step, evidence: Evidence) -> tuple[int, ...]:
    """Ranks that had changed a tensor of their call before they waited for it; nobody where all or none had.

    Parts of one tensor are taken for changed when any of them is, as all ranks may do rightly.
    """
    changers = []
    for rank, call in sorted(step.calls.items()):
        trace = evidence.trace.ranks[rank]
        begun = [wait.changed for wait in trace.waits if wait.changed is not None and wait.changed <= call.begin]
        changers += [rank] if any(calls_within(trace.calls, since, call.begin)[0] is call for since in begun) else []
    return tuple(changers) if len(changers) < len(step.calls) else ()


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
    largest: dict[tuple[str, str, int], list[float]] = {}  # value of any rank, by step
    for step in (step for step in evidence.steps if step.operation.reduces and not step.message):
        guilty = tuple(rank for rank, call in sorted(step.calls.items()) if any(map(_holds_nan, call.inputs)))
        if guilty and _spoils(step):
            return [_odd_values(step, guilty, "nan")]
        if (far := _far(step, largest.setdefault(_line_of(step), []))) is not None:
            return [far]
    return _departures(evidence)


def _spoils(step: Step) -> bool:
    """Whether NaN gets into what a reduction gives; one that only compares may drop it, which its results show."""
    outputs = [buffer for call in step.calls.values() for buffer in call.outputs]
    results = [buffer for buffer in outputs if buffer.values is not None or bool(buffer.summary)]
    adds = all(call.reduce_op in _ARITHMETIC for call in step.calls.values())
    return adds or not results or any(map(_holds_nan, results))


def _far(step: Step, before: list[float]) -> Finding | None:
    """Whether one rank brought to this step what is far from everything before and from what the others brought."""
    known = {rank: value for rank, call in step.calls.items() if (value := _largest(call)) is not None}
    adds = all(call.reduce_op in _ADDS for call in step.calls.values())
    if step.missing or not adds or len(step.calls) < 2 or len(known) < len(step.calls):
        return None
    earlier, usual = [*before], max(before, default=0.0)
    before.append(max(known.values()))
    far = [rank for rank, value in known.items() if value > _FAR * usual]
    rest = max((value for rank, value in known.items() if rank not in far), default=0.0)
    is_known = len(earlier) >= _LEAST_BEFORE and usual and min(earlier) * _NEAR >= usual
    if not is_known or len(far) != 1 or not 0 < rest <= _NEAR * usual:
        return None
    return _odd_values(step, far, "far", value=known[far[0]], rest=rest, usual=usual, steps=len(earlier))


def _departures(evidence: Evidence) -> list[Finding]:
    """One rank that once brought something else to a line where all ranks brought the same before and after."""
    by_line: dict[tuple[str, str, int], list[tuple[Step, dict[int, Hashable]]]] = {}
    for step, values in _all_brought(evidence):
        if len(values) > _LEAST_BEFORE:
            by_line.setdefault(_line_of(step), []).append((step, values))
    findings = []
    for steps in by_line.values():
        places = [place for place, (_, values) in enumerate(steps) if len(set(values.values())) > 1]
        before = {next(iter(values.values())) for _, values in steps[: places[0] if places else 0]}
        if len(places) == 1 and len(before) > _LEAST_BEFORE:
            step, values = steps[places[0]]
            if len(odd := majority(values)[1]) == 1:
                findings.append(_odd_values(step, odd, "other", steps=len(steps) - 1))
    return findings


def _line_of(step: Step) -> tuple[str, str, int]:
    """Steps at the same line, of tensors of the same size."""
    call = next(iter(step.calls.values()))
    return step.op, call.source, sum(buffer.count for buffer in call.inputs)


def _odd_values(step: Step, ranks: Sequence[int], how: Literal["nan", "far", "other"], **more: Any) -> Finding:
    at, kind = lines_of(step.calls[rank] for rank in ranks), ValueKind.NONFINITE if how == "nan" else ValueKind.OUTLIER
    return OddValues(kind=kind, how=how, at=at, **more, **of_step(step, ranks))


def _holds_nan(buffer: Buffer) -> bool:
    if buffer.values is not None:
        return "nan" in buffer.values or any(map(ne, buffer.values, buffer.values))  # it differs from itself
    norm = (buffer.summary or {}).get("norm")
    return norm == "nan" or (isinstance(norm, float) and math.isnan(norm))


def _largest(call: Call) -> float | None:
    """The largest absolute value that a call brought; None where that is not known, or of whole numbers."""
    values: list[Any] = []
    for buffer in call.inputs:
        if not buffer.dtype.startswith(("float", "bfloat")):
            return None
        summary = buffer.summary or {}
        values += buffer.values if buffer.values is not None else (summary.get("min"), summary.get("max"))
    try:
        sizes = [abs(float(value)) for value in values]
    except (TypeError, ValueError):
        return None
    return None if any(map(math.isnan, sizes)) else max(sizes, default=None)


# -- reductions to which all ranks bring the same: the same data everywhere, or gradients that were reduced already

_LEAST_STEPS = 2


def find_same_values(evidence: Evidence) -> list[Finding]:
    """For each line whose reductions of floats brought nothing but the same from all ranks: that it was so."""
    by_line: dict[tuple[str, str], list[tuple[Step, Hashable | None]]] = {}
    for step, brought in _all_brought(evidence):
        same, *others = set(brought.values())
        by_line.setdefault(_line_of(step)[:2], []).append((step, None if others else same))
    every = [({same for _, same in steps}, [step for step, _ in steps]) for steps in by_line.values()]
    alike = [steps for values, steps in every if None not in values and len(values) >= _LEAST_STEPS]
    findings = list[Finding]()
    for steps in alike:
        calls, differ = list(steps[0].calls.values()), len(alike) < len(by_line)
        facts: dict[str, Any] = {
            "gradients": calls[0].phase == "backward",
            "at": lines_of(calls),
            "others_differ": differ,
        }
        findings.append(SameValues(steps=len(steps), op=steps[0].op, **facts, **of_step(steps[0])))
    return findings


def _all_brought(evidence: Evidence) -> Iterator[tuple[Step, dict[int, Hashable]]]:
    """Reductions of several ranks with what each brought; not of counts, flags, and what is too plain to say much."""
    for step in evidence.steps:
        if step.operation.reduces and len(step.calls) > 1 and not step.missing:
            values = {rank: _brought(call) for rank, call in step.calls.items()}
            if None not in values.values():
                yield step, values


def _brought(call: Call) -> Hashable | None:
    """What a call brought, so that equal things are equal; None where that would say nothing."""
    contents = tuple(map(_content, call.inputs))
    return contents if call.reduce_op in _ADDS and any(one is not None for one in contents) else None


def _content(buffer: Buffer) -> Hashable | None:
    values, summary = buffer.values or (), buffer.summary or {}
    if not buffer.dtype.startswith(("float", "bfloat")) or any(isinstance(one, list) for one in values):
        return None  # no floats are pairs
    if buffer.values is not None:
        numbers = [one for one in values if not isinstance(one, str)]
        # Ones and counts say nothing: numbers have to differ from each other, and not to be all whole.
        is_varied = any(number % 1 for number in numbers) and any(number != numbers[0] for number in numbers)
        return tuple(values) if is_varied else None
    told = tuple(str(summary.get(key)) for key in ("n", "hash", "norm", "min", "max"))
    return told if summary.get("hash") and summary.get("min") != summary.get("max") else None
