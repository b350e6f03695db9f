"""Whether the replicas of a DDP module are the same on all ranks: parameters, their order, their values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding, FindingKind, Replicas, Side, WeightsApart, majority
from lab.trace.expected import number_of
from lab.trace.model import Buffer, Call, Module, Parameter, Turn
from lab.words import plural

_CLOSE = 1e-4
"""Norms that differ by less than this part of them are taken to be the same: processors round differently."""
_MOST_NAMES = 3
_OF_DDP = ("backward", "forward", "DDP()")
"""Phases in which DDP itself calls."""


class _ModuleReplicas(NamedTuple):
    """One module with all its replicas, by rank."""

    modules: Mapping[int, Module]

    @property
    def at(self) -> tuple[str, ...]:
        """The lines where it was made."""
        return tuple(dict.fromkeys(module.source for module in self.modules.values() if module.source))


def find_unlike_replicas(evidence: Evidence) -> list[Finding]:
    """What differs between the replicas of each module: its parameters, or their order, or else their values."""
    findings = []
    for replicas in _replicas(evidence):
        found = _other_parameters(replicas, evidence) or _other_order(replicas) or _apart(replicas, evidence)
        found = found or _stepped_by_some(replicas, evidence)
        findings += [found] if found is not None else []
    return findings


def _replicas(evidence: Evidence) -> list[_ModuleReplicas]:
    """Modules that were constructed in the same turn in the same group."""
    by_turn: dict[tuple[str, int], dict[int, Module]] = {}
    for number, rank in evidence.trace.ranks.items():
        turns: dict[str, int] = {}
        for module in rank.modules:
            turns[module.group] = turns.get(module.group, 0) + 1
            by_turn.setdefault((module.group, turns[module.group]), {})[number] = module
    return [_ModuleReplicas(modules) for modules in by_turn.values() if len(modules) > 1]


def _other_parameters(replicas: _ModuleReplicas, evidence: Evidence) -> Finding | None:
    """Ranks whose module has another number of parameters than most, or one of another shape."""
    shapes = {rank: tuple(_kind(one) for one in module.parameters) for rank, module in replicas.modules.items()}
    if len(set(shapes.values())) == 1:
        return None
    _, odd = majority(shapes)
    if not odd:
        _, odd = majority(_compared(evidence))
        odd = tuple(rank for rank in odd if rank in shapes)
    if len({len(of) for of in shapes.values()}) > 1:
        counts = _sides({rank: plural(len(of), "parameter") for rank, of in shapes.items()})
        told = Replicas(how="parameters", sides=counts, only_here=_only_here(replicas, odd))
    else:
        first = next(n for n, of in enumerate(zip(*shapes.values(), strict=True)) if len(set(of)) > 1)
        shown = _sides({rank: _shown(module.parameters[first]) for rank, module in replicas.modules.items()})
        told = Replicas(how="parameter", sides=shown, place=first + 1)
    return _finding(FindingKind.SHAPE, told, replicas, odd)


def _compared(evidence: Evidence) -> dict[int, tuple[object, ...]]:
    """What each rank brought when DDP compared the shapes last, also one that ended before its module was on record."""
    return {
        rank: tuple(call.own[0].values)
        for rank, trace in evidence.trace.ranks.items()
        for call in trace.calls
        if call.phase == "DDP()" and call.own and call.own[0].dtype == "int64" and call.own[0].values
    }


def _sides(by_rank: Mapping[int, str]) -> tuple[Side, ...]:
    """What ranks have, and who has it, as a finding tells it."""
    return tuple(Side(ranks=tuple(ranks), what=what) for what, ranks in sides(by_rank).items())


def sides(by_rank: Mapping[int, str]) -> dict[str, list[int]]:
    """What ranks have, and who has it."""
    found: dict[str, list[int]] = {}
    for rank, what in by_rank.items():
        found.setdefault(what, []).append(rank)
    return found


def _kind(parameter: Parameter) -> tuple[str, tuple[int, ...]]:
    return parameter.dtype, parameter.shape


def _shown(parameter: Parameter) -> str:
    return f"{parameter.name} ({parameter.dtype} {list(parameter.shape)})"


def _only_here(replicas: _ModuleReplicas, odd: tuple[int, ...]) -> tuple[str, ...]:
    """Parameters that only the odd ranks have, by name."""
    others = {one.name for rank, module in replicas.modules.items() if rank not in odd for one in module.parameters}
    return tuple(one.name for rank in odd[:1] for one in replicas.modules[rank].parameters if one.name not in others)


def _other_order(replicas: _ModuleReplicas) -> Finding | None:
    """Ranks that have the same parameters in another order: nothing stops DDP from adding up what does not belong."""
    names = {rank: tuple(one.name for one in module.parameters) for rank, module in replicas.modules.items()}
    if len(set(names.values())) == 1 or len({tuple(sorted(of)) for of in names.values()}) > 1:
        return None
    _, odd = majority(names)
    first = next(n for n, of in enumerate(zip(*names.values(), strict=True)) if len(set(of)) > 1)
    told = Replicas(how="order", place=first + 1, sides=_sides({rank: of[first] for rank, of in names.items()}))
    return _finding(FindingKind.PARAMETER_ORDER, told, replicas, odd)


def _apart(replicas: _ModuleReplicas, evidence: Evidence) -> Finding | None:
    """Ranks whose parameters have other values than those of most, the last time that all were looked at."""
    modules = replicas.modules
    turns = sorted(set.intersection(*(set(module.norms) for module in modules.values())))
    apart = [steps for steps in turns if not _alike({rank: module.norms[steps] for rank, module in modules.items()})]
    if not apart or apart[-1] != turns[-1] or _are_averaged(replicas, evidence):
        return None
    steps = apart[0]
    norms = {rank: module.norms[steps] for rank, module in modules.items()}
    _, odd = majority({rank: next(other for other in norms if close(norms[rank], norms[other])) for rank in norms})
    count = len(next(iter(norms.values())))
    first = next(n for n in range(count) if not _alike({rank: (of[n],) for rank, of in norms.items()}))
    name = next(iter(modules.values())).parameters[first].name
    traces = [evidence.trace.ranks[rank] for rank in modules]
    exchanged = any(call.phase == "backward" and call.operation.reduces for trace in traces for call in trace.calls)
    told = Replicas(
        how="norm",
        sides=_sides({rank: f"{of[first]:.6g}" for rank, of in norms.items()}),
        place=first + 1,
        parameter=name,
        steps=steps,
        unused_forward=not any(mark.name == "forward" for trace in traces for mark in trace.marks),
        no_exchange=not exchanged,
    )
    return _finding(FindingKind.DIVERGED, told, replicas, odd)


def _stepped_by_some(replicas: _ModuleReplicas, evidence: Evidence) -> Finding | None:
    """Ranks whose optimizers changed the module, where those of others never did, though all exchanged its gradients.

    Unless the others may have got the weights in some other way.
    """
    modules, traces = replicas.modules, {rank: evidence.trace.ranks[rank] for rank in replicas.modules}
    stepped = {rank: bool(module.norms) for rank, module in modules.items()}
    moved = all(len(set(module.norms.values())) > 1 for module in modules.values() if module.norms)
    if len(set(stepped.values())) == 1 or not moved or _are_averaged(replicas, evidence):
        return None
    sources = {rank: [mark for mark in trace.marks if mark.name == "step"] for rank, trace in traces.items()}
    first = min((marks[0].begin for rank, marks in sources.items() if stepped[rank] and marks), default=math.inf)
    for trace in traces.values():
        after = [call for call in trace.calls if call.begin > first]
        if not any(call.phase == "backward" and call.operation.reduces for call in after):
            return None
    _, odd = majority(stepped)
    ours = tuple(rank for rank in modules if stepped[rank])
    lines = tuple(sources[rank][0].source for rank in ours if sources[rank])
    told = Replicas(how="steps", stepped=ours, stepped_at=tuple(dict.fromkeys(lines)))
    found = _finding(FindingKind.DIVERGED, told, replicas, odd)
    return replace(found, facts=replace(found.facts, lines=(*lines, *found.lines)))


def _are_averaged(replicas: _ModuleReplicas, evidence: Evidence) -> bool:
    """Whether ranks may hold other weights by intent: gradients go elsewhere, or weights go round by other calls.

    Such a call moves as many elements as the module has, or there is one for each size of its parameters.
    """
    for rank, module in replicas.modules.items():
        sizes = [Buffer(one.dtype, one.shape).count for one in module.parameters]
        moved = set[int]()
        for call in evidence.trace.ranks[rank].calls:
            if call.phase == "backward" and call.operation.reduces and call.group != module.group:
                return True
            if call.phase not in _OF_DDP and call.operation.moves_data:
                moved.add(sum(buffer.count for buffer in call.own))
        if sizes and (moved >= set(sizes) or max(moved, default=0) >= sum(sizes)):
            return True
    return False


def _alike(norms: Mapping[int, Sequence[float | None]]) -> bool:
    first = next(iter(norms.values()))
    return all(close(first, other) for other in norms.values())


def close(one: Sequence[float | None], other: Sequence[float | None]) -> bool:
    """Whether norms are those of the same tensors, as far as they are known."""
    return len(one) == len(other) and all(map(_same, one, other))


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return True  # nobody knows
    return one == other or (one != one and other != other) or abs(one - other) <= _CLOSE * max(abs(one), abs(other))


def _finding(kind: FindingKind, told: Replicas, replicas: _ModuleReplicas, odd: tuple[int, ...]) -> Finding:
    others = tuple(rank for rank in replicas.modules if rank not in odd)
    lines = tuple(replicas.modules[rank].source for rank in (*odd, *others))
    return Finding(kind=kind, facts=replace(told, at=replicas.at, ranks=odd, others=others, lines=lines))


# -- weights that ranks train by the same reduced gradients, without DDP, and that are not the same on all of them

_MOST_CALLS = 512
"""Of the calls before a step so many are looked at."""
_ADDS = ("SUM", "AVG")
Turns = Mapping[int, Turn]
"""By rank: the same step of the same optimizer."""


class _WeightsApart(NamedTuple):
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
        apart = [
            [*_weights_apart(n, {rank: of[optimizer, n] for rank, of in of_ranks.items()}, evidence)] for n in numbers
        ]
        still = [last.turns.keys() for last in apart[-1]]
        findings += [_weights(first) for first in apart[0] if first.turns.keys() in still]
    return findings


def _with_gradients(turns: Mapping[tuple[int, int], Turn]) -> dict[tuple[int, int], Turn]:
    """The steps whose gradients are on record; those of the last step may have been dropped before that."""
    return {step: turn for step, turn in turns.items() if any(norm is not None for norm in turn.gradients)}


def _weights_apart(steps: int, turns: Turns, evidence: Evidence) -> Iterator[_WeightsApart]:
    """Among the ranks that made a step, those of the same gradients whose weights differ."""
    for alike in _of_the_same_gradients(turns):
        first = next(iter(alike.values()))
        if not all(close(first.norms, turn.norms) for turn in alike.values()):
            reduced = [_reductions(turn, _sums(rank, turn, alike, evidence)) for rank, turn in alike.items()]
            if all(reduced):
                yield _WeightsApart(steps, alike, tuple(dict.fromkeys(line for lines in reduced for line in lines)))


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


def _weights(found: _WeightsApart) -> Finding:
    turns = found.turns
    by_rank = {rank: turn.norms for rank, turn in turns.items()}
    first = next(iter(by_rank.values()))
    place = next(
        n for n in range(len(first)) if not all(close(of[n : n + 1], first[n : n + 1]) for of in by_rank.values())
    )
    _, odd = majority(
        {rank: next(of for of in by_rank.values() if close(of, norms)) for rank, norms in by_rank.items()}
    )
    steps = tuple(dict.fromkeys(turn.source for turn in turns.values() if turn.source))
    others = tuple(rank for rank in turns if rank not in odd)
    norms = {rank: "unknown" if of[place] is None else f"{of[place]:.6g}" for rank, of in by_rank.items()}
    facts = WeightsApart(
        reduced_at=found.reductions,
        steps=found.steps,
        stepped_at=steps,
        place=place + 1,
        sides=_sides(norms),
        ranks=odd,
        others=others,
        lines=(*found.reductions, *(turns[rank].source for rank in (*odd, *others))),
    )
    return Finding(kind=FindingKind.DIVERGED, facts=facts)
