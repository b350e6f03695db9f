"""Where ranks met in one step with different calls: another operation, dtype, shape, reduction, root, or split.

Only what an operation requires to be equal is compared. A rank is the odd one out if more than half of the ranks that
came to the step agree on something else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lab.trace.model import Buffer, Call
from lab.trace.steps import Step

_REDUCES = frozenset(
    {"all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_tensor"}
    | {"reduce_scatter_tensor_coalesced"}
)
_ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
_SAME_INPUT = frozenset(
    {"broadcast", "all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_tensor"}
    | {"reduce_scatter_tensor_coalesced", "all_gather_into_tensor", "all_gather_into_tensor_coalesced"}
    | {"all_gather_coalesced"}
)
"""Operations to which every rank brings as many elements."""
_PAIRWISE = frozenset({"all_gather", "gather", "scatter", "all_to_all"})
"""Operations in which what one rank gives has to fit what another has made room for."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A step in which ranks do not agree."""

    kind: str
    """`mismatch` (the operation), `dtype`, `shape`, `reduce_op`, `root`, `splits`."""
    step: Step
    sides: tuple[tuple[str, tuple[int, ...]], ...]
    """What was called or brought, and by whom; what most did comes first."""

    @property
    def odd(self) -> tuple[int, ...]:
        """Ranks that differ from what more than half did; empty where there is no such majority."""
        total = sum(len(ranks) for _, ranks in self.sides)
        if 2 * len(self.sides[0][1]) <= total:
            return ()
        return tuple(sorted(rank for _, ranks in self.sides[1:] for rank in ranks))


def find_differences(steps: Iterable[Step]) -> list[Difference]:
    """Every step whose ranks differ, in order; in each group none after the first with different operations.

    After that the calls of the group's ranks are no longer the same ones, and differ for that reason.
    """
    found: list[Difference] = []
    apart: set[str] = set()
    for step in steps:
        if len(step.calls) < 2 or step.group.name in apart:
            continue
        difference = _compare(step)
        if difference is not None:
            found.append(difference)
            if difference.kind == "mismatch":
                apart.add(step.group.name)
    return found


def brought(call: Call) -> str:
    """The tensors of a call in words: `float32 [4]`, `float32 [4] ×3`."""
    buffers = call.inputs or call.outputs
    if call.op == "scatter":
        buffers = call.outputs or call.inputs
    words = [f"{buffer.dtype} {list(buffer.shape)}" for buffer in buffers]
    if len(words) > 1 and len(set(words)) == 1:
        return f"{words[0]} ×{len(words)}"
    return ", ".join(words[:4]) + (", …" if len(words) > 4 else "") or "nothing"


def _compare(step: Step) -> Difference | None:
    calls = step.calls
    if step.message:
        return _compare_message(step)
    if len({call.op for call in calls.values()}) > 1:
        return _difference("mismatch", step, lambda call: call.op)
    op = step.op
    if op in _ROOTED and (difference := _difference("root", step, _root)):
        return difference
    if op in _REDUCES and (difference := _difference("reduce_op", step, lambda call: call.reduce_op)):
        return difference
    if op not in ("barrier", "monitored_barrier") and (difference := _difference("dtype", step, _dtype, brought)):
        return difference
    if op in _SAME_INPUT:
        return _difference("shape", step, lambda call: str([b.count for b in call.inputs]), brought)
    if op in _PAIRWISE and not _fits(step):
        return _difference("shape", step, lambda call: str([b.count for b in _own(call)]), brought)
    if op == "all_to_all_single":
        return _compare_splits(step)
    return None


def _difference(
    kind: str, step: Step, key: Callable[[Call], str], words: Callable[[Call], str] | None = None
) -> Difference | None:
    sides: dict[str, list[int]] = defaultdict(list)
    said: dict[str, str] = {}
    for rank, call in sorted(step.calls.items()):
        value = key(call)
        if value:
            sides[value].append(rank)
            said.setdefault(value, words(call) if words else value)
    return _sides(kind, step, {said[value]: ranks for value, ranks in sides.items()}) if len(sides) > 1 else None


def _sides(kind: str, step: Step, sides: Mapping[str, list[int]]) -> Difference:
    ordered = sorted(sides.items(), key=lambda item: (-len(item[1]), item[1]))
    return Difference(kind, step, tuple((what, tuple(ranks)) for what, ranks in ordered))


def _root(call: Call) -> str:
    return "" if call.root is None else f"root {call.root}"


def _dtype(call: Call) -> str:
    """The dtypes of all tensors that a call takes and gives; empty for one that brings none."""
    return ", ".join(sorted({buffer.dtype for buffer in (*call.inputs, *call.outputs)}))


def _own(call: Call) -> tuple[Buffer, ...]:
    """The tensors of a call that are the rank's own part."""
    return call.outputs if call.op == "scatter" else call.inputs


def _fits(step: Step) -> bool:
    """Whether every part that a rank gives is as large as what its receiver has made room for."""
    members = {rank: position for position, rank in enumerate(step.group.ranks)}
    for giver, given in step.calls.items():
        for taker, taken in step.calls.items():
            there, here = members.get(taker, 0), members.get(giver, 0)
            gives = (
                given.inputs[0] if step.op in ("all_gather", "gather") and given.inputs else _at(given.inputs, there)
            )
            takes = taken.outputs[0] if step.op == "scatter" and taken.outputs else _at(taken.outputs, here)
            if gives is not None and takes is not None and gives.count != takes.count:
                return False
    return True


def _at(buffers: tuple[Buffer, ...], position: int) -> Buffer | None:
    return buffers[position] if position < len(buffers) else None


def _compare_splits(step: Step) -> Difference | None:
    """Ranks whose input split does not fit the output split of somebody else."""
    members = {rank: position for position, rank in enumerate(step.group.ranks)}
    clashes: dict[int, set[int]] = {rank: set() for rank in step.calls}
    for giver, given in step.calls.items():
        for taker, taken in step.calls.items():
            gives, takes = _split(given, 1, len(members)), _split(taken, 0, len(members))
            there, here = members.get(taker, 0), members.get(giver, 0)
            if there < len(gives) and here < len(takes) and gives[there] != takes[here]:
                clashes[giver].add(taker)
                clashes[taker].add(giver)
    if not any(clashes.values()):
        return None
    return _difference("splits", step, lambda call: f"output {_split(call, 0, len(members))}, input "
                       f"{_split(call, 1, len(members))}")  # fmt: skip


def _split(call: Call, side: int, size: int) -> list[int]:
    """How many rows go to or come from each rank; without a split, equal parts."""
    if call.splits is not None and call.splits[side]:
        return list(call.splits[side])
    buffers = call.inputs if side else call.outputs
    rows = buffers[0].shape[0] if buffers and buffers[0].shape else 0
    return [rows // size] * size


def _compare_message(step: Step) -> Difference | None:
    sent = next((call.inputs for call in step.calls.values() if call.op == "send"), ())
    received = next((call.outputs or call.inputs for call in step.calls.values() if call.op == "recv"), ())
    if not sent or not received:
        return None
    if sent[0].dtype != received[0].dtype:
        return _difference("dtype", step, lambda call: call.op, brought)
    if sent[0].count != received[0].count:
        return _difference("shape", step, lambda call: call.op, brought)
    return None
