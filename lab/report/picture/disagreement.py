"""In what the calls of the ranks do not fit each other; a backend may then do anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lab.report.picture.words import shape_text
from lab.trace.model import Call
from lab.trace.steps import Step
from lab.words import name_ranks

_ALIKE = frozenset(
    {"broadcast", "all_reduce", "all_reduce_coalesced", "reduce", "all_gather_into_tensor", "reduce_scatter_tensor"}
)
"""Operations in which every rank has to give as many elements as the others."""


def disagreement_of(step: Step) -> str:
    """In what the calls of a step do not fit each other, a sentence; empty where they do."""
    calls = [step.calls[rank] for rank in sorted(step.calls)]
    if step.message:
        sizes = {(b.dtype, b.count) for call in calls for b in (call.outputs if call.op == "recv" else call.inputs)}
        return _told("sizes", calls, _sizes) if len(sizes) > 1 else ""
    for what, tell in (("operations", _op), ("reductions", _reduction), ("roots", _root), ("dtypes", _dtypes)):
        if len({tell(call) for call in calls if tell(call)}) > 1:
            return _told(what, calls, tell)
    if step.op in _ALIKE and len({_counts(call) for call in calls}) > 1:
        return _told("sizes", calls, _sizes)
    return ""


def _told(what: str, calls: Sequence[Call], tell: Callable[[Call], str]) -> str:
    by_answer: dict[str, list[int]] = {}
    for call in calls:
        by_answer.setdefault(tell(call), []).append(call.rank)
    answers = [f"{name_ranks(ranks)} {answer}" for answer, ranks in by_answer.items() if answer]
    return f"the ranks disagree about {what}: {'; '.join(answers)}"


def _op(call: Call) -> str:
    return call.op


def _reduction(call: Call) -> str:
    return call.reduce_op


def _root(call: Call) -> str:
    return "" if call.root is None else f"rank {call.root}"


def _dtypes(call: Call) -> str:
    return ", ".join(dict.fromkeys(buffer.dtype for buffer in (*call.inputs, *call.outputs)))


def _counts(call: Call) -> str:
    return ", ".join(str(buffer.count) for buffer in call.inputs)


def _sizes(call: Call) -> str:
    buffers = call.outputs if call.op == "recv" else call.inputs
    return ", ".join(shape_text(buffer.dtype, buffer.shape) for buffer in buffers)
