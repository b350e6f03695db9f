"""Weights that ranks train by the same reduced gradients, without DDP, and that are not the same on all of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding, majority
from lab.diagnosis.replicas import close, sides
from lab.trace.expected import number_of
from lab.trace.model import Buffer, Call
from lab.trace.training import Turn
from lab.words import listing, name_ranks, ordinal, plural

_MOST_CALLS = 512
"""Of the calls before a step so many are looked at."""
_ADDS = ("SUM", "AVG")
Turns = Mapping[int, Turn]
"""By rank: the same step of the same optimizer."""


class _Apart(NamedTuple):
    """Ranks whose weights differ after a step that took the same gradients on all of them."""

    steps: int
    turns: Turns
    reductions: tuple[str, ...]
    """Lines from which the gradients were reduced."""


class _Sum(NamedTuple):
    """What a reduction gave to a rank."""

    line: str
    size: int
    norms: tuple[float, float]
    """Its norm, and that of the mean if it is a sum."""
    varied: bool
    """Whether its elements are not all the same."""


def find_weights_apart(evidence: Evidence) -> list[Finding]:
    """For each optimizer, ranks that went from other weights by gradients that they had reduced together.

    Weights may well differ: those of a pipeline's stages, of parts of a matrix, of an ensemble. But then gradients do,
    too, or they are not what a reduction gave.
    """
    of_ranks = {rank: turns for rank, trace in evidence.trace.ranks.items() if (turns := _with_gradients(trace.turns))}
    common = set.intersection(*map(set, of_ranks.values())) if of_ranks else set()
    findings = []
    for optimizer in sorted({number for number, _ in common}):
        numbers = sorted(steps for number, steps in common if number == optimizer)
        apart = [[*_apart(n, {rank: of[optimizer, n] for rank, of in of_ranks.items()}, evidence)] for n in numbers]
        still = [last.turns.keys() for last in apart[-1]]
        findings += [_finding(first) for first in apart[0] if first.turns.keys() in still]
    return findings


def _with_gradients(turns: Mapping[tuple[int, int], Turn]) -> dict[tuple[int, int], Turn]:
    """The steps of which gradients are known: those of the last step may have been dropped before it was told."""
    return {step: turn for step, turn in turns.items() if any(norm is not None for norm in turn.gradients)}


def _apart(steps: int, turns: Turns, evidence: Evidence) -> Iterator[_Apart]:
    """Among the ranks that made a step, those of the same gradients whose weights differ."""
    for alike in _of_the_same_gradients(turns):
        first = next(iter(alike.values()))
        if not all(close(first.norms, turn.norms) for turn in alike.values()):
            reduced = [_reductions(turn, _sums(rank, turn, alike, evidence)) for rank, turn in alike.items()]
            if all(reduced):
                yield _Apart(steps, alike, tuple(dict.fromkeys(line for lines in reduced for line in lines)))


def _of_the_same_gradients(turns: Turns) -> Iterator[Turns]:
    """Ranks with parameters of the same sizes and gradients of the same norms; at least two, and not all 0."""
    left = dict(turns)
    while left:
        first = next(iter(left.values()))
        alike = {
            rank: turn
            for rank, turn in left.items()
            if turn.sizes == first.sizes and close(turn.gradients, first.gradients)
        }
        left = {rank: turn for rank, turn in left.items() if rank not in alike}
        if len(alike) > 1:
            yield alike


def _sums(rank: int, turn: Turn, alike: Turns, evidence: Evidence) -> list[_Sum]:
    """What reductions over all of these ranks had given to one of them before its step, the latest first."""
    found, groups = [], evidence.trace.groups
    before = [call for call in evidence.calls(rank) if call.end is not None and call.end <= turn.time]
    for call in reversed(before[-_MOST_CALLS:]):
        members = groups[call.group].ranks if call.group in groups else ()
        if call.operation.reduces and call.reduce_op in _ADDS and alike.keys() <= set(members):
            found += [one for buffer in call.outputs if (one := _sum(call, buffer, len(members))) is not None]
    return found


def _sum(call: Call, buffer: Buffer, size: int) -> _Sum | None:
    if buffer.values is not None and len(buffer.values) == buffer.count:
        norm = math.hypot(*(abs(number_of(value)) for value in buffer.values))
        return _Sum(call.source, buffer.count, (norm, norm / size), len(set(map(str, buffer.values))) > 1)
    told = buffer.summary or {}
    if not isinstance(told.get("norm"), float):
        return None
    return _Sum(call.source, buffer.count, (told["norm"], told["norm"] / size), told.get("min") != told.get("max"))


def _reductions(turn: Turn, sums: Sequence[_Sum]) -> list[str]:
    """The lines whose reductions gave a rank its gradients, all of them; empty where some came from elsewhere."""
    known = [(size, norm) for size, norm in zip(turn.sizes, turn.gradients, strict=True) if norm]
    each = [_find(size, norm, sums) for size, norm in known]
    at_once = _find(sum(size for size, _ in known), math.hypot(*(norm for _, norm in known)), sums)
    found = [one for one in each if one is not None] if None not in each else [at_once] if at_once is not None else []
    return [one.line for one in found] if any(one.varied for one in found) else []


def _find(count: int, norm: float, sums: Sequence[_Sum]) -> _Sum | None:
    return next((one for one in sums if one.size == count and any(close((n,), (norm,)) for n in one.norms)), None)


def _finding(found: _Apart) -> Finding:
    turns = found.turns
    by_rank = {rank: turn.norms for rank, turn in turns.items()}
    first = next(iter(by_rank.values()))
    place = next(
        n for n in range(len(first)) if not all(close(of[n : n + 1], first[n : n + 1]) for of in by_rank.values())
    )
    _, odd = majority(
        {rank: next(of for of in by_rank.values() if close(of, norms)) for rank, norms in by_rank.items()}
    )
    first_step = plural(found.steps, "step")
    shown = sides({rank: "unknown" if of[place] is None else f"{of[place]:.6g}" for rank, of in by_rank.items()})
    steps = listing(turn.source for turn in turns.values())
    sentence = (
        f"{name_ranks(turns)} train by the same gradients, reduced at {listing(found.reductions)}, but not the same "
        f"weights: after {first_step} of the optimizer{f' at {steps}' if steps else ''} the norm of its "
        f"{ordinal(place + 1)} parameter is {listing(f'{norm} on {name_ranks(ours)}' for norm, ours in shown.items())}."
    )
    others = tuple(rank for rank in turns if rank not in odd)
    lines = (*found.reductions, *(turns[rank].source for rank in (*odd, *others)))
    return Finding(kind="diverged", sentence=sentence, ranks=odd, others=others, lines=lines)
