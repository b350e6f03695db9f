"""Results that are not what their operation should have given: computed anew from what all ranks brought."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from lab.diagnosis.ends import at_lines
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding
from lab.trace.clashes import clash_in
from lab.trace.expected import Number, compared, is_copy, is_outside
from lab.trace.late import wait_after
from lab.trace.model import Buffer, Call, calls_within
from lab.trace.parts import output_parts
from lab.trace.steps import Step
from lab.words import capital, listing, name_ranks, ordinal, plural

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
    return [_finding(*steps[0], len(steps), evidence) for steps in found.values()]


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


def _finding(step: Step, wrongs: list[_Wrong], times: int, evidence: Evidence) -> Finding:
    ranks = [wrong.call.rank for wrong in wrongs]
    right = [rank for rank in step.calls if rank not in ranks]
    first = wrongs[0]
    sentence = f"{step.title}{at_lines(step.calls.values())} did not give {name_ranks(ranks)} what it should have: "
    sentence += f"{what_is_wrong(first)}."
    handles = [wrong.call for wrong in wrongs if wrong.call.hands_out]
    waits = [wait for call in handles if (wait := wait_after(evidence.trace.ranks[call.rank], call)) is not None]
    changers = _who_changed(step, evidence)
    if handles and waits:
        lines = listing(wait.source for wait in waits)
        what = f"{capital(name_ranks(changers))} changed a tensor" if changers else "A tensor was changed"
        sentence += f" {what} between the call and the wait for its handle at {lines}, before it was done."
    elif handles:
        sentence += " A tensor was changed before the call was done: nobody waited for its handle."
    elif _all_alike(first.call.outputs):
        sentence += f" All {len(first.call.outputs)} tensors that it filled hold the same, as if they were one."
    if times > 1:
        sentence += f" So it was in {plural(times - 1, 'other step')}, too."
    ranks_of = tuple(rank for rank in (*ranks, *right) if rank not in changers)
    lines_of = [wrong.call.source for wrong in wrongs] + [wait.source for wait in waits]
    kind = "changed_before_wait" if handles else "wrong_result"
    return Finding(
        kind=kind, sentence=sentence, ranks=changers, others=ranks_of, step=step.title, lines=tuple(lines_of)
    )


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


def what_is_wrong(wrong: _Wrong) -> str:
    """What stands where: `element 0 holds 7.0 and should hold 6.0`."""
    of = f" of its {ordinal(wrong.tensor + 1)} tensor" if len(wrong.call.outputs) > 1 else ""
    if wrong.element is None:
        tensor = f"the {ordinal(wrong.tensor + 1)} tensor of rank" if of else "rank"
        than = "what was brought can give" if wrong.call.operation.reduces else "was given"
        return f"{tensor} {wrong.call.rank} {'holds' if not of else 'is'} another tensor than {than}"
    where = f"element {wrong.element}{of} on rank {wrong.call.rank}"
    return f"{where} is {_said(wrong.got)} and should be {_said(wrong.expected)}"


def _said(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _all_alike(outputs: tuple[Buffer, ...]) -> bool:
    values = [buffer.values for buffer in outputs]
    return len(values) > 1 and values[0] is not None and all(value == values[0] for value in values)
