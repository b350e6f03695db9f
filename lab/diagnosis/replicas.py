"""Whether the replicas of a DDP module are the same on all ranks: parameters, their order, their values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding, majority
from lab.trace.model import Buffer
from lab.trace.training import Module, Parameter
from lab.words import listing, name_ranks, ordinal, plural

_CLOSE = 1e-4
"""Norms that differ by less than this part of them are taken to be the same: processors round differently."""
_MOST_NAMES = 3
_OF_DDP = ("backward", "forward", "DDP()")
"""Phases in which DDP itself calls."""


class _Replicas(NamedTuple):
    """One module with all its replicas, by rank."""

    modules: Mapping[int, Module]

    @property
    def title(self) -> str:
        """`the DDP module at train.py:20`."""
        lines = listing(module.source for module in self.modules.values())
        return f"the DDP module{f' at {lines}' if lines else ''}"


def find_unlike_replicas(evidence: Evidence) -> list[Finding]:
    """What differs between the replicas of each module: its parameters, or their order, or else their values."""
    findings = []
    for replicas in _replicas(evidence):
        found = _other_parameters(replicas, evidence) or _other_order(replicas) or _apart(replicas, evidence)
        found = found or _stepped_by_some(replicas, evidence)
        findings += [found] if found is not None else []
    return findings


def _replicas(evidence: Evidence) -> list[_Replicas]:
    """Modules that were constructed in the same turn in the same group."""
    by_turn: dict[tuple[str, int], dict[int, Module]] = {}
    for number, rank in evidence.trace.ranks.items():
        turns: dict[str, int] = {}
        for module in rank.modules:
            turns[module.group] = turns.get(module.group, 0) + 1
            by_turn.setdefault((module.group, turns[module.group]), {})[number] = module
    return [_Replicas(modules) for modules in by_turn.values() if len(modules) > 1]


def _other_parameters(replicas: _Replicas, evidence: Evidence) -> Finding | None:
    """Ranks whose module has another number of parameters than most, or one of another shape."""
    shapes = {rank: tuple(_kind(one) for one in module.parameters) for rank, module in replicas.modules.items()}
    if len(set(shapes.values())) == 1:
        return None
    _, odd = majority(shapes)
    if not odd:
        _, odd = majority(_compared(evidence))
        odd = tuple(rank for rank in odd if rank in shapes)
    numbers = {len(of) for of in shapes.values()}
    if len(numbers) > 1:
        sentence = f"The replicas of {replicas.title} are not alike: "
        sentence += _have({rank: plural(len(of), "parameter") for rank, of in shapes.items()})
        extra = _only_here(replicas, odd)
        sentence += f"; {extra} only on {name_ranks(odd)}." if extra else "."
    else:
        first = next(n for n in range(numbers.pop()) if len({of[n] for of in shapes.values()}) > 1)
        shown = {rank: _shown(module.parameters[first]) for rank, module in replicas.modules.items()}
        sentence = f"The replicas of {replicas.title} are not alike: as {ordinal(first + 1)} parameter {_have(shown)}."
    return _finding("shape", sentence, replicas, odd)


def _compared(evidence: Evidence) -> dict[int, tuple[object, ...]]:
    """What each rank brought when DDP compared the shapes last, also one that ended before its module was on record."""
    return {
        rank: tuple(call.own[0].values)
        for rank, trace in evidence.trace.ranks.items()
        for call in trace.calls
        if call.phase == "DDP()" and call.own and call.own[0].dtype == "int64" and call.own[0].values
    }


def _have(by_rank: Mapping[int, str]) -> str:
    """`rank 0 has this, and ranks 1 and 2 have that`."""
    by_what = sides(by_rank)
    return listing(f"{name_ranks(ours)} {'has' if len(ours) == 1 else 'have'} {what}" for what, ours in by_what.items())


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


def _only_here(replicas: _Replicas, odd: tuple[int, ...]) -> str:
    """Parameters that only the odd ranks have, by name."""
    others = {one.name for rank, module in replicas.modules.items() if rank not in odd for one in module.parameters}
    names = [one.name for rank in odd[:1] for one in replicas.modules[rank].parameters if one.name not in others]
    return listing(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")


def _other_order(replicas: _Replicas) -> Finding | None:
    """Ranks that have the same parameters in another order: nothing stops DDP from adding up what does not belong."""
    names = {rank: tuple(one.name for one in module.parameters) for rank, module in replicas.modules.items()}
    if len(set(names.values())) == 1 or len({tuple(sorted(of)) for of in names.values()}) > 1:
        return None
    _, odd = majority(names)
    first = next(n for n, of in enumerate(zip(*names.values(), strict=True)) if len(set(of)) > 1)
    sentence = (
        f"The replicas of {replicas.title} have the same parameters in another order: as {ordinal(first + 1)} "
        f"{_have({rank: of[first] for rank, of in names.items()})}. DDP goes by their number, so gradients of "
        "different parameters were added up."
    )
    return _finding("parameter_order", sentence, replicas, odd)


def _apart(replicas: _Replicas, evidence: Evidence) -> Finding | None:
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
    said = sides({rank: f"{of[first]:.6g}" for rank, of in norms.items()})
    sentence = (
        f"After {plural(steps, 'optimizer step')} the replicas of {replicas.title} are no longer the same: the norm of "
        f"{name} is {listing(f'{norm} on {name_ranks(ours)}' for norm, ours in said.items())}."
    )
    traces = [evidence.trace.ranks[rank] for rank in modules]
    if not any(mark.name == "forward" for trace in traces for mark in trace.marks):
        sentence += " The forward of the module was never called: what it holds was called past it."
    elif not any(call.phase == "backward" and call.operation.reduces for trace in traces for call in trace.calls):
        sentence += " No backward had exchanged gradients."
    return _finding("diverged", sentence, replicas, odd)


def _stepped_by_some(replicas: _Replicas, evidence: Evidence) -> Finding | None:
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
    ours, rest = [rank for rank in modules if stepped[rank]], [rank for rank in modules if not stepped[rank]]
    lines = [sources[rank][0].source for rank in ours if sources[rank]]
    sentence = (
        f"{name_ranks(ours)} stepped the parameters of {replicas.title}{f' at {listing(lines)}' if lines else ''}, and "
        f"{name_ranks(rest)} never did, where all exchanged their gradients: the replicas are no longer the same."
    )
    found = _finding("diverged", sentence, replicas, odd)
    return replace(found, lines=(*lines, *found.lines))


def _are_averaged(replicas: _Replicas, evidence: Evidence) -> bool:
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


def _finding(kind: str, sentence: str, replicas: _Replicas, odd: tuple[int, ...]) -> Finding:
    others = tuple(rank for rank in replicas.modules if rank not in odd)
    lines = tuple(replicas.modules[rank].source for rank in (*odd, *others))
    return Finding(kind=kind, sentence=sentence, ranks=odd, others=others, lines=lines)
