"""Find wrong values in runs that do not fail: unexpected results, NaN, outliers, and equal inputs of all ranks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import ne
from typing import Any, Literal

from lab.diagnosis.ends import lines_of, of_step
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding, Kind, UnexpectedElement, Words, find_majority
from lab.diagnosis.wording import render_lines, render_repeats, render_unexpected
from lab.features.values.expected import clash_in, compare_values, is_copy, is_outside, output_parts
from lab.trace.model import Buffer, Call, calls_within
from lab.trace.read import wait_after
from lab.trace.steps import Step
from lab.words import capitalize_first, format_count, group_pairs, name_ranks


class ValueKind(Kind):
    """The kinds of findings of this feature."""

    WRONG_RESULT = "wrong_result"
    CHANGED_BEFORE_WAIT = "changed_before_wait"
    NONFINITE = "nonfinite"
    OUTLIER = "outlier"
    SAME_VALUES = "same_values"


class UnexpectedResult(Finding):
    """A step with another result than expected."""

    affected_ranks: tuple[int, ...] = field(metadata={"key": "wrong_ranks"})
    first: UnexpectedElement
    at: tuple[str, ...] = ()
    handles: bool = False
    waits_at: tuple[str, ...] = ()
    unwaited: bool = False
    """Whether the named rank waited for fewer of its handles than the others."""
    alike: int = 0
    """Number of output tensors, if all hold the same values as if they were one tensor; otherwise 0."""
    again: int = 0
    """In how many other steps the same happened."""

    def render(self) -> Words:
        """Name the unexpected value, and the reason."""
        where, who, why = f"{self.step}{render_lines(self.at)}", name_ranks(self.affected_ranks), ""
        if self.unwaited:
            rank = capitalize_first(name_ranks(self.ranks))
            why = f"{rank} did not wait for each of its handles, as the other ranks did."
        elif self.handles and self.waits_at:
            what = f"{capitalize_first(name_ranks(self.ranks))} changed a tensor" if self.ranks else "A tensor changed"
            waits = render_lines(self.waits_at)
            why = f"{what} between the call and the wait for its handle{waits}, before the call was done."
        elif self.handles:
            why = "A tensor changed before the call was done, because no rank waited for its handle."
        elif self.alike:
            why = f"All {self.alike} tensors that it filled have the same values, like a single tensor."
        head = f"the result of {where} on {who} is wrong: {render_unexpected(self.first)}"
        return head, why, render_repeats(self.again)


class SpoilingValues(Finding):
    """Inputs of some ranks that spoil the results of others."""

    how: Literal["nan", "far", "other"]
    at: tuple[str, ...] = ()
    value: float = 0.0
    rest: float = 0.0
    usual: float = 0.0
    steps: int = 0
    """Number of steps before it, or at the same line."""

    def render(self) -> Words:
        """Name the inputs of these ranks, and those of the others."""
        where, gets = f"{self.step}{render_lines(self.at)}", "each rank that gets the result also gets"
        what = {
            "nan": f"NaN to {where}, the first recorded NaN; {gets} NaN",
            "far": f"values up to {self.value:.3g} to {where}, but the others passed at most {self.rest:.3g}, and "
            f"no rank more than {self.usual:.3g} in the {format_count(self.steps, 'step')} before it; {gets} them",
            "other": f"other values than the other ranks to {where}; in "
            f"{format_count(self.steps, 'other step')}, all ranks passed equal values",
        }
        return f"{name_ranks(self.ranks)} passed {what[self.how]}"


class SameValues(Finding):
    """Reductions to which all ranks passed the same values."""

    kind: Kind = ValueKind.SAME_VALUES
    steps: int
    op: str
    gradients: bool = False
    at: tuple[str, ...] = ()
    others_differ: bool = False

    def render(self) -> Words:
        """Name the steps with equal inputs, and possible reasons."""
        what = f"each of {format_count(self.steps, self.op)}" if self.steps > 1 else self.step
        why = "all of them have the same data, or an earlier reduction made the values equal"
        if self.others_differ:
            why = "an earlier reduction made the values equal, or all of them have the same data"
        phase = " of gradients" if self.gradients else ""
        return f"{name_ranks(self.others)} passed the same values to {what}{phase}{render_lines(self.at)}: either {why}"


# -- unexpected results, recomputed from the inputs of all ranks

MAX_STEPS = 5000
"""Most steps that are checked."""


def check_results(step: Step) -> list[UnexpectedElement]:
    """Return the first unexpected output of each rank, if all ranks entered and the expected values are known."""
    if step.missing:
        return []
    calls = [call for call in step.calls.values() if call.state == "completed" and not call.late]
    return [element for call in calls for element in islice(_unexpected_outputs(step, call), 1)]


def _unexpected_outputs(step: Step, call: Call) -> Iterator[UnexpectedElement]:
    if call.operation.sends:
        return
    make_element = partial(UnexpectedElement, rank=call.rank, tensors=len(call.outputs), reduces=call.operation.reduces)
    for tensor, (buffer, parts) in enumerate(zip(call.outputs, output_parts(step, call), strict=True)):
        if buffer.values is not None and len(buffer.values) == buffer.count:
            compared = compare_values(step, parts, buffer.dtype, buffer.values)
            for element, (expected, is_unexpected) in enumerate(compared):
                if is_unexpected:
                    yield make_element(tensor=tensor, element=element, got=buffer.values[element], expected=expected)
                    break
        elif is_copy(step, buffer, parts) is False or is_outside(step, buffer, parts):
            yield make_element(tensor=tensor, element=None)


def find_unexpected_results(evidence: Evidence) -> list[Finding]:
    """Return steps with unexpected results, grouped by the lines of their calls."""
    checked = ((step, check_results(step)) for step in islice(evidence.steps, MAX_STEPS) if clash_in(step) is None)
    by_lines = group_pairs(
        ((step.op, *sorted({call.source for call in step.calls.values()})), (step, elements))
        for step, elements in checked
        if elements
    )
    return [_unexpected_result(*steps[0], len(steps) - 1, evidence) for steps in by_lines.values()]


def _unexpected_result(step: Step, elements: list[UnexpectedElement], again: int, evidence: Evidence) -> Finding:
    ranks = tuple(element.rank for element in elements)
    handles = [c for c in step.calls.values() if c.has_handle and (c.rank in ranks or c.giver in (None, c.rank))]
    waits = [wait for call in handles if (wait := wait_after(evidence.trace.ranks[call.rank], call)) is not None]
    changers, unwaited = _who_changed(step, evidence), _who_waited_less(step, evidence) if handles else ()
    first, *rest = [buffer.values for buffer in step.calls[ranks[0]].outputs]
    named = changers or unwaited
    return UnexpectedResult(
        kind=ValueKind.CHANGED_BEFORE_WAIT if handles else ValueKind.WRONG_RESULT,
        affected_ranks=ranks,
        first=elements[0],
        at=lines_of(step.calls.values()),
        handles=bool(handles),
        waits_at=tuple(wait.source for wait in waits),
        unwaited=bool(unwaited) and not changers,
        alike=1 + len(rest) if bool(rest) and first is not None and all(values == first for values in rest) else 0,
        again=again,
        ranks=named,
        others=tuple(rank for rank in dict.fromkeys((*ranks, *step.calls)) if rank not in named),
        step=step.title,
        lines=(*(step.calls[rank].source for rank in (*named, *ranks)), *(wait.source for wait in waits)),
    )


def _who_changed(step: Step, evidence: Evidence) -> tuple[int, ...]:
    """Return ranks that changed a tensor of their call before they waited for it; empty if all or none did.

    A change of any part of a tensor counts as a change of all parts, so all ranks may legally do it.
    """
    changers = []
    for rank, call in sorted(step.calls.items()):
        trace = evidence.trace.ranks[rank]
        begun = [wait.changed for wait in trace.waits if wait.changed is not None and wait.changed <= call.begin]
        changers += [rank] if any(calls_within(trace.calls, since, call.begin)[0] is call for since in begun) else []
    return tuple(changers) if len(changers) < len(step.calls) else ()


def _who_waited_less(step: Step, evidence: Evidence) -> tuple[int, ...]:
    """Return ranks that waited for fewer of their handles than most; empty if all waited alike."""
    traces = {rank: evidence.trace.ranks[rank] for rank in sorted(step.calls)}
    unwaited = {rank: sum(call.has_handle for call in one.calls) - len(one.waits) for rank, one in traces.items()}
    usual, deviating = find_majority(unwaited)
    less = all(usual is not None and unwaited[rank] > usual for rank in deviating)
    return deviating if less and not any(one.skipped for one in traces.values()) else ()


# -- inputs that spoil the results of other ranks: NaN, or in reductions values far from all others

_ADDS = ("SUM", "AVG")
_ARITHMETIC = (*_ADDS, "PRODUCT", "PREMUL_SUM")
"""Reductions in which NaN leads to NaN."""
_LEAST_BEFORE = 2
"""This many earlier steps at the same line define what is usual."""
_FAR = 1e4
"""A value this many times as large as all others is an outlier."""
_NEAR = 1e2


def find_spoiled_reductions(evidence: Evidence) -> list[Finding]:
    """Return the first reduction to which a rank passed NaN or an outlier, or the first step from which NaN came there.

    After it the other ranks have the value from its result. Other operations may carry NaN on purpose: without a
    reduction, they count only if the same line passed other values before.
    """
    usual, clean = defaultdict[tuple[str, str, int], _Usual](_Usual), set[tuple[int, str]]()
    first: Finding | None = None
    by_change = False
    for step in evidence.steps:
        givers = {rank: call for rank, call in sorted(step.calls.items()) if call.giver in (None, rank)}
        guilty = tuple(rank for rank, call in givers.items() if any(map(_holds_nan, call.inputs)))
        reduces = step.operation.reduces and not step.message
        if guilty and reduces and _spoils(step):
            return [first or _spoiling_values(step, guilty, "nan")]
        if not reduces:
            if guilty and first is None:
                first = _spoiling_values(step, guilty, "nan")
                by_change = all((rank, givers[rank].path) in clean for rank in guilty)
            clean |= {(rank, call.path) for rank, call in givers.items() if rank not in guilty}
            continue
        if (far := _far(step, usual[_line_of(step)])) is not None:
            return [far]
    return [first] if first is not None and by_change else _departures(evidence)


def _spoils(step: Step) -> bool:
    """Return whether NaN reaches the result: reductions that only compare may drop it, which their results show."""
    outputs = [buffer for call in step.calls.values() for buffer in call.outputs]
    results = [buffer for buffer in outputs if buffer.values is not None or bool(buffer.summary)]
    adds = all(call.reduce_op in _ARITHMETIC for call in step.calls.values())
    return adds or not results or any(map(_holds_nan, results))


@dataclass(slots=True)
class _Usual:
    """The largest values of the earlier steps at a line."""

    steps: int = 0
    least: float = math.inf
    most: float = 0.0


def _far(step: Step, before: _Usual) -> Finding | None:
    """Return a finding if one rank's input is far from all earlier inputs and from those of the others."""
    known = {rank: value for rank, call in step.calls.items() if (value := _largest(call)) is not None}
    adds = all(call.reduce_op in _ADDS for call in step.calls.values())
    if step.missing or not adds or len(step.calls) < 2 or len(known) < len(step.calls):
        return None
    steps, least, usual, largest = before.steps, before.least, before.most, max(known.values())
    before.steps, before.least, before.most = steps + 1, min(least, largest), max(usual, largest)
    far = [rank for rank, value in known.items() if value > _FAR * usual]
    rest = max((value for rank, value in known.items() if rank not in far), default=0.0)
    is_known = steps >= _LEAST_BEFORE and usual and least * _NEAR >= usual
    if not is_known or len(far) != 1 or not 0 < rest <= _NEAR * usual:
        return None
    return _spoiling_values(step, far, "far", value=known[far[0]], rest=rest, usual=usual, steps=steps)


def _departures(evidence: Evidence) -> list[Finding]:
    """Return steps in which one rank once passed another value to a line where otherwise all inputs are equal."""
    inputs = ((step, values) for step, values in _list_inputs(evidence) if len(values) > _LEAST_BEFORE)
    findings = []
    for steps in group_pairs((_line_of(step), (step, values)) for step, values in inputs).values():
        positions = [position for position, (_, values) in enumerate(steps) if len(set(values.values())) > 1]
        before = {next(iter(values.values())) for _, values in steps[: positions[0] if positions else 0]}
        if len(positions) == 1 and len(before) > _LEAST_BEFORE:
            step, values = steps[positions[0]]
            if len(deviating := find_majority(values)[1]) == 1:
                findings.append(_spoiling_values(step, deviating, "other", steps=len(steps) - 1))
    return findings


def _line_of(step: Step) -> tuple[str, str, int]:
    """Return the line and size of a step, to compare it with others."""
    call = next(iter(step.calls.values()))
    return step.op, call.source, sum(buffer.count for buffer in call.inputs)


def _spoiling_values(step: Step, ranks: Sequence[int], how: Literal["nan", "far", "other"], **facts: Any) -> Finding:
    at, kind = lines_of(step.calls[rank] for rank in ranks), ValueKind.NONFINITE if how == "nan" else ValueKind.OUTLIER
    return SpoilingValues(kind=kind, how=how, at=at, **facts, **of_step(step, ranks))


def _holds_nan(buffer: Buffer) -> bool:
    if buffer.values is not None:
        return "nan" in buffer.values or any(map(ne, buffer.values, buffer.values))  # NaN differs from itself
    norm = (buffer.summary or {}).get("norm")
    return norm == "nan" or (isinstance(norm, float) and math.isnan(norm))


def _largest(call: Call) -> float | None:
    """Return the largest absolute value in a call's inputs; None if unknown or no floats."""
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


# -- reductions with equal inputs on all ranks: the same data everywhere, or gradients that were already reduced

_LEAST_STEPS = 2


def find_same_values(evidence: Evidence) -> list[Finding]:
    """Return lines whose reductions of floats had only equal inputs from all ranks."""
    by_line: dict[tuple[str, str], list[tuple[Step, Hashable | None]]] = {}
    for step, inputs in _list_inputs(evidence):
        same, *others = set(inputs.values())
        by_line.setdefault(_line_of(step)[:2], []).append((step, None if others else same))
    every = [({same for _, same in steps}, [step for step, _ in steps]) for steps in by_line.values()]
    alike = [steps for values, steps in every if None not in values and len(values) >= _LEAST_STEPS]
    findings = list[Finding]()
    for steps in alike:
        calls, differ = list(steps[0].calls.values()), len(alike) < len(by_line)
        facts = dict[str, Any](gradients=calls[0].phase == "backward", at=lines_of(calls), others_differ=differ)
        findings.append(SameValues(steps=len(steps), op=steps[0].op, **facts, **of_step(steps[0])))
    return findings


def _list_inputs(evidence: Evidence) -> Iterator[tuple[Step, dict[int, Hashable]]]:
    """Yield reductions with the inputs of each rank; leave out counts, flags, and trivial inputs."""
    for step in evidence.steps:
        if step.operation.reduces and len(step.calls) > 1 and not step.missing:
            values = {rank: _comparable_inputs(call) for rank, call in step.calls.items()}
            if None not in values.values():
                yield step, values


def _comparable_inputs(call: Call) -> Hashable | None:
    """Return the inputs of a call in a form that compares equal for equal inputs; None if they are trivial."""
    contents = tuple(map(_content, call.inputs))
    return contents if call.reduce_op in _ADDS and any(one is not None for one in contents) else None


def _content(buffer: Buffer) -> Hashable | None:
    values, summary = buffer.values or (), buffer.summary or {}
    kinds = {*map(type, values)}
    if not buffer.dtype.startswith(("float", "bfloat")) or list in kinds:
        return None  # pairs are complex numbers
    if buffer.values is not None:
        numbers = [one for one in values if not isinstance(one, str)] if str in kinds else values
        # Ones and counts are trivial: the numbers must differ from each other, and not all may be integers.
        is_varied = numbers and numbers.count(numbers[0]) < len(numbers) and any(number % 1 for number in numbers)
        return tuple(values) if is_varied else None
    shown = tuple(str(summary.get(key)) for key in ("n", "hash", "norm", "min", "max"))
    return shown if summary.get("hash") and summary.get("min") != summary.get("max") else None
