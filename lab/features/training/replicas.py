"""Check that ranks train the same: replicas of DDP modules, and weights that belong to no module."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import chain, combinations, islice
from typing import Any, Literal, NamedTuple

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding, FindingKind, Kind, Side, Words, find_majority, sides_of, unique_lines
from lab.diagnosis.wording import render_lines
from lab.features.training.findings import TrainingKind
from lab.features.training.trace_lines import Turn, turns_of, turns_of_modules
from lab.features.values.expected import number_of
from lab.frozen import Frozen
from lab.record.result import Expectation
from lab.run.options import Job
from lab.spec.declare import key_field
from lab.spec.expressions import RankVariables
from lab.spec.kinds import choice_kind
from lab.spec.scenario import Tolerance
from lab.trace.model import Buffer, Call, Module, RankTrace
from lab.words import format_count, format_ordinal, join_words, name_ranks

_CLOSE = 1e-4
"""Norms that differ by less than this part count as equal: processors round differently."""
_OF_DDP = ("backward", "forward", "DDP()")
"""Phases in which DDP itself makes calls."""
Norms = Sequence[float | None]
_How = Literal["parameters", "parameter", "order", "norm", "steps"]
_MOST_NAMES = 3


Modules = Mapping[int, Module]
"""By rank: the replicas of one module."""


class FirstUnlike(Frozen):
    """What differed at the first recorded step after which parameters differ."""

    what: str
    """A setting of the optimizer, `lr`, or `gradient`."""
    sides: tuple[Side, ...]
    line: str = ""
    """Where the deviating rank, or the first, made the step; for a setting that never changed, made the optimizer."""

    def render(self) -> str:
        """Say what differed, as a clause that follows the difference of a parameter."""
        which = "the norm of its gradient" if self.what == "gradient" else f"{self.what} of the optimizer"
        return f"; in that step {which}{render_lines([self.line])} was {on_sides(self.sides)}"


class Replicas(Finding):
    """Replicas of a DDP module that differ."""

    first_unlike: FirstUnlike | None = None

    how: _How
    at: tuple[str, ...] = ()
    """Where the module was constructed."""
    sides: tuple[Side, ...] = ()
    only_here: tuple[str, ...] = ()
    """Parameters that only the deviating ranks have."""
    position: int = field(default=0, metadata={"key": "place"})
    """Number of the parameter, from 1."""
    parameter: str = ""
    steps: int = 0
    unused_forward: bool = False
    no_exchange: bool = False
    stepped: tuple[int, ...] = ()
    stepped_at: tuple[str, ...] = ()

    def render(self) -> Words:
        """Describe how the replicas differ."""
        title, position = f"the DDP module{render_lines(self.at)}", format_ordinal(self.position)
        unlike = join_words(map(_have, self.sides))
        why = ""
        match self.how:
            case "parameters":
                names = join_words(self.only_here[:_MOST_NAMES]) + (", …" if len(self.only_here) > _MOST_NAMES else "")
                extra = f"; {names} only on {name_ranks(self.ranks)}" if names else ""
                head = f"the replicas of {title} differ: {unlike}{extra}"
            case "parameter":
                head = f"the replicas of {title} differ: as {position} parameter {unlike}"
            case "order":
                head = f"the replicas of {title} have the same parameters in another order: as {position} {unlike}"
                why = "DDP matches parameters by their position, so it summed gradients of different parameters."
            case "norm":
                why = "No backward had exchanged gradients." if self.no_exchange else ""
                if self.unused_forward:
                    why = "The script never called the forward of the module: it used the module's contents directly."
                steps = format_count(self.steps, "optimizer step")
                after = f"after {steps} the replicas of {title} are no longer the same"
                head = f"{after}: the norm of {self.parameter} is {on_sides(self.sides)}"
                head += self.first_unlike.render() if self.first_unlike else ""
            case _:
                never = name_ranks(rank for rank in (*self.ranks, *self.others) if rank not in self.stepped)
                stepped = f"{name_ranks(self.stepped)} stepped the parameters of {title}{render_lines(self.stepped_at)}"
                exchanged = "although all exchanged their gradients: the replicas are no longer the same"
                head = f"{stepped}, but {never} never did, {exchanged}"
                if self.sides:
                    lines = render_lines(self.stepped_at)
                    made = f"made {on_sides(self.sides)}{lines}: the replicas are no longer the same"
                    head = f"before the last exchange of gradients, optimizers of {title} {made}"
        return head, why


class DivergedWeights(Finding):
    """Weights that are trained with the same gradients and differ."""

    kind: Kind = TrainingKind.DIVERGED
    first_unlike: FirstUnlike | None = None
    reduced_at: tuple[str, ...]
    steps: int
    stepped_at: tuple[str, ...]
    position: int = field(metadata={"key": "place"})
    sides: tuple[Side, ...]

    def render(self) -> Words:
        """Name the lines that reduced the gradients, and how the weights differ."""
        return (
            f"{name_ranks((*self.ranks, *self.others))} train with the same gradients, but not the same weights: after "
            f"{format_count(self.steps, 'step')} of the optimizer{render_lines(self.stepped_at)}, the norm of its "
            f"{format_ordinal(self.position)} parameter is {on_sides(self.sides)}"
            f"{self.first_unlike.render() if self.first_unlike else ''}",
            f"The gradients were reduced at {join_words(self.reduced_at)}.",
        )


def on_sides(sides: Sequence[Side]) -> str:
    """Return `3 steps on rank 0 and 4 steps on rank 1`."""
    return join_words(f"{side.what} on {name_ranks(side.ranks)}" for side in sides)


def _have(side: Side) -> str:
    return f"{name_ranks(side.ranks)} {'has' if len(side.ranks) == 1 else 'have'} {side.what}"


def find_unlike_state(evidence: Evidence) -> list[Finding]:
    """Return replicas that differ, then weights without a module."""
    return [*find_unlike_replicas(evidence), *find_diverged_weights(evidence)]


def find_unlike_replicas(evidence: Evidence) -> list[Finding]:
    """Return how the replicas of each module differ: in their parameters, in the order, or in the values."""
    findings = list[Finding]()
    for modules in _replicas(evidence):
        rules = (_other_parameters, _other_order, _stepped_less, _other_values, _stepped_by_some)
        findings += islice(filter(None, (rule(modules, evidence) for rule in rules)), 1)
    return findings


def _replicas(evidence: Evidence) -> list[Modules]:
    """Return modules that were constructed in the same turn in the same group."""
    by_turn: dict[tuple[str, int], dict[int, Module]] = {}
    for number, rank in evidence.trace.ranks.items():
        turns = Counter[str]()
        for module in rank.modules:
            turns[module.group] += 1
            by_turn.setdefault((module.group, turns[module.group]), {})[number] = module
    return [modules for modules in by_turn.values() if len(modules) > 1]


def _other_parameters(modules: Modules, evidence: Evidence) -> Finding | None:
    """Return ranks whose module has another number of parameters than most, or one of another shape."""
    shapes = {rank: tuple((one.dtype, one.shape) for one in module.parameters) for rank, module in modules.items()}
    if len(set(shapes.values())) == 1:
        return None
    compared = find_majority(_compared(evidence))[1]
    deviating = find_majority(shapes)[1] or tuple(rank for rank in compared if rank in shapes)
    if len({len(of) for of in shapes.values()}) > 1:
        counts = sides_of({rank: format_count(len(of), "parameter") for rank, of in shapes.items()})
        only_here = _only_here(modules, deviating)
        return _unlike(FindingKind.SHAPE, "parameters", modules, deviating, sides=counts, only_here=only_here)
    first = _first_difference(shapes)
    parameters = {rank: module.parameters[first] for rank, module in modules.items()}
    shown = {rank: f"{one.name} ({one.dtype} {list(one.shape)})" for rank, one in parameters.items()}
    return _unlike(FindingKind.SHAPE, "parameter", modules, deviating, sides=sides_of(shown), position=first + 1)


def _first_difference(by_rank: Mapping[int, Sequence[object]]) -> int:
    return next(n for n, of in enumerate(zip(*by_rank.values(), strict=True)) if len(set(of)) > 1)


def _compared(evidence: Evidence) -> dict[int, tuple[object, ...]]:
    """Return what each rank passed to DDP's last comparison of shapes, even if its module was not recorded."""
    return {
        rank: tuple(call.own[0].values)
        for rank, trace in evidence.trace.ranks.items()
        for call in trace.calls
        if call.phase == "DDP()" and call.own and call.own[0].dtype == "int64" and call.own[0].values
    }


def _only_here(modules: Modules, deviating: tuple[int, ...]) -> tuple[str, ...]:
    """Return the names of parameters that only the deviating ranks have."""
    others = {one.name for rank, module in modules.items() if rank not in deviating for one in module.parameters}
    return tuple(one.name for rank in deviating[:1] for one in modules[rank].parameters if one.name not in others)


def _other_order(modules: Modules, _: Evidence) -> Finding | None:
    """Return ranks with the same parameters in another order.

    DDP does not notice it, and adds gradients that do not belong together.
    """
    names = {rank: tuple(one.name for one in module.parameters) for rank, module in modules.items()}
    if len(set(names.values())) == 1 or len({tuple(sorted(of)) for of in names.values()}) > 1:
        return None
    first = _first_difference(names)
    sides, deviating = sides_of({rank: of[first] for rank, of in names.items()}), find_majority(names)[1]
    return _unlike(TrainingKind.PARAMETER_ORDER, "order", modules, deviating, position=first + 1, sides=sides)


def _other_values(modules: Modules, evidence: Evidence) -> Finding | None:
    """Return ranks whose parameters differ from those of most, the last time that all were recorded."""
    turns = sorted(set.intersection(*(set(module.norms) for module in modules.values())))
    diverged = [steps for steps in turns if not _alike({rank: module.norms[steps] for rank, module in modules.items()})]
    if not diverged or diverged[-1] != turns[-1] or _are_averaged(modules, evidence):
        return None
    norms = {rank: module.norms[diverged[0]] for rank, module in modules.items()}
    first, deviating = _first_divergence(norms)
    traces = [evidence.trace.ranks[rank] for rank in modules]
    known = {rank: turns_of_modules(evidence.trace.ranks[rank]) for rank in modules}
    steps_of = {rank: known[rank].get((module.number, diverged[0])) for rank, module in modules.items()}
    unlike, step = _first_unlike(steps_of, first, deviating), steps_of[next(iter(deviating or modules))]
    return _unlike(
        TrainingKind.DIVERGED,
        "norm",
        modules,
        deviating,
        first_unlike=unlike,
        stepped_at=unique_lines([unlike.line if unlike else step.source if step and diverged[0] != turns[0] else ""]),
        sides=sides_of({rank: f"{of[first]:.6g}" for rank, of in norms.items()}),
        position=first + 1,
        parameter=next(iter(modules.values())).parameters[first].name,
        steps=diverged[0],
        unused_forward=not any(phase.name == "forward" for trace in traces for phase in trace.phases),
        no_exchange=not any(_exchanges(call) for trace in traces for call in trace.calls),
    )


def _first_unlike(turns: Mapping[int, Turn | None], position: int, deviating: tuple[int, ...]) -> FirstUnlike | None:
    """Return which setting of the optimizers, or else whether the gradient of a parameter, differed in a step."""
    known = {rank: turn for rank, turn in turns.items() if turn is not None}
    if len(known) < len(turns):
        return None
    first = known[next(iter(deviating or known))]
    for name in dict.fromkeys(chain(*(turn.settings for turn in known.values()))):
        values = {rank: turn.settings.get(name) for rank, turn in known.items()}
        if len({*values.values()}) > 1:
            shown = {rank: "not set" if value is None else f"{value:.6g}" for rank, value in values.items()}
            return FirstUnlike(what=name, sides=sides_of(shown), line=first.made_at or first.source)
    gradients = {rank: turn.gradients[position : position + 1] for rank, turn in known.items()}
    if not all(map(len, gradients.values())) or _alike(gradients):
        return None
    shown = {rank: "unknown" if of[0] is None else f"{of[0]:.6g}" for rank, of in gradients.items()}
    return FirstUnlike(what="gradient", sides=sides_of(shown), line=first.source)


def _first_divergence(norms: Mapping[int, Norms]) -> tuple[int, tuple[int, ...]]:
    """Return the first parameter whose norms differ, and the ranks that deviate from most."""
    count = len(next(iter(norms.values())))
    first = next(n for n in range(count) if not _alike({rank: of[n : n + 1] for rank, of in norms.items()}))
    alike = {rank: next(other for other in norms if are_close(norms[other], mine)) for rank, mine in norms.items()}
    return first, find_majority(alike)[1]


def _stepped_less(modules: Modules, evidence: Evidence) -> Finding | None:
    """Return ranks that stepped the module less or more often than others that exchanged as many gradients."""
    traces = {rank: evidence.trace.ranks[rank] for rank in modules}
    turns = [one for rank in modules for one in turns_of_modules(traces[rank]).items()]
    lines = {turn.source for (number, _), turn in turns if number in {one.number for one in modules.values()}}
    until = {rank: max((c.begin for c in of.calls if _exchanges(c)), default=0.0) for rank, of in traces.items()}
    before = ((rank, one) for rank, of in traces.items() for one in of.phases if one.begin < until[rank])
    made = Counter(rank for rank, one in before if one.name == "step" and one.source in lines)
    steps = {rank: made[rank] for rank in traces}
    exchanged = {sum(map(_exchanges, trace.calls)) for trace in traces.values()}
    is_whole = all(trace.stopped for trace in traces.values()) and not evidence.trace.is_tail
    if len({*steps.values()}) == 1 or len(exchanged) > 1 or not is_whole or _are_averaged(modules, evidence):
        return None
    sides, deviating = sides_of({rank: format_count(of, "step") for rank, of in steps.items()}), find_majority(steps)[1]
    return _unlike(TrainingKind.DIVERGED, "steps", modules, deviating, sides=sides, stepped_at=unique_lines(lines))


def _stepped_by_some(modules: Modules, evidence: Evidence) -> Finding | None:
    """Return ranks whose optimizers changed the module although those of others never did.

    All of them exchanged its gradients. Nothing is returned if the others may have received the weights in another way.
    """
    ours = tuple(rank for rank, module in modules.items() if module.norms)
    moved = all(len(set(modules[rank].norms.values())) > 1 for rank in ours)
    if len(ours) in (0, len(modules)) or not moved or _are_averaged(modules, evidence):
        return None
    traces = {rank: evidence.trace.ranks[rank] for rank in modules}
    firsts = [phase for rank in ours for phase in [phase for phase in traces[rank].phases if phase.name == "step"][:1]]
    since = min((phase.begin for phase in firsts), default=math.inf)
    if not all(any(call.begin > since and _exchanges(call) for call in of.calls) for of in traces.values()):
        return None
    lines = unique_lines(phase.source for phase in firsts)
    deviating = find_majority({rank: rank in ours for rank in modules})[1]
    return _unlike(TrainingKind.DIVERGED, "steps", modules, deviating, stepped=ours, stepped_at=lines)


def _exchanges(call: Call) -> bool:
    return call.phase == "backward" and call.operation.reduces


def _are_averaged(modules: Modules, evidence: Evidence) -> bool:
    """Return whether weights may differ on purpose: gradients go to another group, or other calls exchange weights.

    Such a call moves as many elements as the module has, or there is a call for each size of its parameters.
    """
    for rank, module in modules.items():
        calls, sizes = evidence.trace.ranks[rank].calls, [Buffer(it.dtype, it.shape).count for it in module.parameters]
        others = [call for call in calls if call.phase not in _OF_DDP and call.operation.moves_data]
        moved = {sum(buffer.count for buffer in call.own) for call in others}
        go_round = sizes and (moved >= set(sizes) or max(moved, default=0) >= sum(sizes))
        if go_round or any(_exchanges(call) and call.group != module.group for call in calls):
            return True
    return False


def _alike(norms: Mapping[int, Norms]) -> bool:
    first, *others = norms.values()
    return all(are_close(first, other) for other in others)


def are_close(one: Norms, other: Norms) -> bool:
    """Return whether norms may be those of the same tensors, as far as they are known."""
    return len(one) == len(other) and all(map(_same, one, other))


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return True  # unknown
    return one == other or (one != one and other != other) or abs(one - other) <= _CLOSE * max(abs(one), abs(other))


def _unlike(kind: Kind, how: _How, modules: Modules, deviating: tuple[int, ...], **facts: Any) -> Finding:
    others = tuple(rank for rank in modules if rank not in deviating)
    lines = (*facts.get("stepped_at", ()), *(modules[rank].source for rank in (*deviating, *others)))
    at = unique_lines(module.source for module in modules.values())
    return Replicas(kind=kind, how=how, at=at, ranks=deviating, others=others, lines=lines, **facts)


# -- weights that ranks train with the same reduced gradients, without DDP, and that differ

_MOST_CALLS = 512
"""Most calls before a step that are read."""
_ADDS = ("SUM", "AVG")
Turns = Mapping[int, Turn]
"""By rank: the same step of the same optimizer."""


class _Sum(NamedTuple):
    """Result of a reduction on a rank."""

    line: str
    size: int
    norms: tuple[float, float]
    """Norm of the result, and norm of the mean if it is a sum."""
    varied: bool
    """Whether its elements differ from each other."""


def find_diverged_weights(evidence: Evidence) -> list[Finding]:
    """Return, for each optimizer, ranks whose weights differ although they reduced their gradients together.

    Weights may legally differ: in pipeline stages, parts of a matrix, or an ensemble. But then the gradients differ
    too, or they are not the result of a reduction.
    """
    of_ranks = dict[int, dict[tuple[int, int], Turn]]()
    for rank, trace in evidence.trace.ranks.items():
        # The gradients of the last step may have been freed before they were recorded.
        turns = {of: turn for of, turn in turns_of(trace).items() if any(norm is not None for norm in turn.gradients)}
        of_ranks |= {rank: turns} if turns else {}
    common = set.intersection(*map(set, of_ranks.values())) if of_ranks else set()
    findings = list[Finding]()
    for optimizer in sorted({number for number, _ in common}):
        diverged = [
            [*_diverged_weights(steps, {rank: of[optimizer, steps] for rank, of in of_ranks.items()}, evidence)]
            for steps in sorted(steps for number, steps in common if number == optimizer)
        ]
        for last in diverged[-1]:
            ours = {*last.ranks, *last.others}
            findings.append(next(one for one in chain(*diverged) if {*one.ranks, *one.others} == ours))
    return findings


def _diverged_weights(steps: int, turns: Turns, evidence: Evidence) -> Iterator[DivergedWeights]:
    """Yield ranks with the same gradients and different weights, among ranks that made a step."""
    for alike in _of_the_same_gradients(turns):
        norms = {rank: turn.norms for rank, turn in alike.items()}
        reduced = [_reductions(turn, _sums(rank, turn, alike, evidence)) for rank, turn in alike.items()]
        if _alike(norms) or not all(reduced):
            continue
        reduced_at = unique_lines(chain(*reduced))
        first, deviating = _first_divergence(norms)
        others = tuple(rank for rank in alike if rank not in deviating)
        unlike = _first_unlike(alike, first, deviating)
        shown = {rank: "unknown" if of[first] is None else f"{of[first]:.6g}" for rank, of in norms.items()}
        yield DivergedWeights(
            first_unlike=unlike,
            reduced_at=reduced_at,
            steps=steps,
            stepped_at=unique_lines(turn.source for turn in alike.values()),
            position=first + 1,
            sides=sides_of(shown),
            ranks=deviating,
            others=others,
            lines=(
                unlike.line if unlike else "",
                *(alike[rank].source for rank in deviating),
                *reduced_at,
                *(alike[rank].source for rank in others),
            ),
        )


def _of_the_same_gradients(turns: Turns) -> Iterator[Turns]:
    """Yield groups of at least two ranks with equal parameter sizes and equal norms of gradients."""
    left = dict(turns)
    while left:
        first = next(iter(left.values()))
        same = [n for n, of in left.items() if of.sizes == first.sizes and are_close(of.gradients, first.gradients)]
        alike = {rank: left.pop(rank) for rank in same}
        if len(alike) > 1:
            yield alike


def _sums(rank: int, turn: Turn, alike: Turns, evidence: Evidence) -> list[_Sum]:
    """Return results of reductions over all of these ranks before a rank's step, the latest first."""
    sums, groups = [], evidence.trace.groups
    before = [call for call in evidence.calls(rank) if call.end is not None and call.end <= turn.time]
    for call in reversed(before[-_MOST_CALLS:]):
        members = groups[call.group].ranks if call.group in groups else ()
        if call.operation.reduces and call.reduce_op in _ADDS and alike.keys() <= set(members):
            sums += [one for buffer in call.outputs if (one := _sum(call, buffer, len(members))) is not None]
    return sums


def _sum(call: Call, buffer: Buffer, size: int) -> _Sum | None:
    values, summary = buffer.values, buffer.summary or {}
    norm, varied = summary.get("norm"), summary.get("min") != summary.get("max")
    if values is not None and len(values) == buffer.count:
        norm, varied = math.hypot(*(abs(number_of(value)) for value in values)), len(set(map(str, values))) > 1
    return _Sum(call.source, buffer.count, (norm, norm / size), varied) if isinstance(norm, float) else None


def _reductions(turn: Turn, sums: Sequence[_Sum]) -> list[str]:
    """Return the lines of the reductions that produced all gradients of a rank; empty if some came from elsewhere."""
    known = [(size, norm) for size, norm in zip(turn.sizes, turn.gradients, strict=True) if norm]
    each = [_find(size, norm, sums) for size, norm in known]
    if None in each:
        each = [_find(sum(size for size, _ in known), math.hypot(*(norm for _, norm in known)), sums)]
    known_sums = [one for one in each if one is not None]
    return [one.line for one in known_sums] if any(one.varied for one in known_sums) else []


def _find(count: int, norm: float, sums: Sequence[_Sum]) -> _Sum | None:
    return next((one for one in sums if one.size == count and any(are_close((n,), (norm,)) for n in one.norms)), None)


class _Trained(NamedTuple):
    """What one rank trains: a DDP module, or the parameters of an optimizer without a module."""

    title: str
    names: Sequence[str]
    """Names of its parameters, in order."""
    norms: dict[int, Norms]
    """By number of steps: the norm of each parameter."""


class ReplicasKeys(Frozen):
    """What scenarios state about replicas."""

    replicas: str | None = key_field(None, choice_kind(("equal",)), "replicas: equal", "not checked")
    """`equal`: what ranks train must be the same on all of them. Compared are the norms of all parameters of each
    DistributedDataParallel module and of each other optimizer, after its steps 1, 2, 4, 8, ..., and the last, within
    `tolerance`."""


def judge_replicas(_: str, job: Job, evidence: Evidence, variables: Mapping[int, RankVariables]) -> list[Expectation]:
    """Return the expectation of a run's scenario."""
    return [check_replicas(job.plan.scenario.expect.tolerance, evidence, len(variables))]


def check_replicas(tolerance: Tolerance, evidence: Evidence, world_size: int) -> Expectation:
    """Return the expectation that ranks train the same; it is not met if this is unknown."""
    problem = next(_problems(tolerance, evidence, range(world_size)), None)
    return Expectation(what="replicas", expected="equal", got=problem or "equal", met=problem is None)


def _problems(tolerance: Tolerance, evidence: Evidence, ranks: Sequence[int]) -> Iterator[str]:
    traces = evidence.trace.ranks
    if missing := [rank for rank in ranks if rank not in traces or not traces[rank].recorded]:
        yield f"(the record has no trace of {name_ranks(missing)})"
        return
    trained: dict[tuple[str, int], dict[int, _Trained]] = {}
    for rank in ranks:
        for identity, one in _trained(traces[rank]).items():
            trained.setdefault(identity, {})[rank] = one
    if not trained:
        yield "(the record has no step of an optimizer)"
    for replicas in trained.values():
        if lacking := [rank for rank in ranks if rank not in replicas]:
            title = next(iter(replicas.values())).title
            yield f"{title} is on {name_ranks(replicas)}, but not on {name_ranks(lacking)}"
        yield from _differences(tolerance, replicas)


def _trained(trace: RankTrace) -> dict[tuple[str, int], _Trained]:
    """Return what a rank trained, by kind and number."""
    trained = {}
    for turn, module in enumerate(trace.modules, 1):
        names = [parameter.name for parameter in module.parameters]
        if module.norms:
            trained["module", turn] = _Trained(f"the DDP module at {module.source}", names, {**module.norms})
    for (number, steps), one in turns_of(trace).items():
        names = [f"its {format_ordinal(position + 1)} parameter" for position in range(len(one.sizes))]
        optimizer = _Trained(f"the optimizer that steps at {one.source}", names, {})
        trained.setdefault(("optimizer", number), optimizer).norms[steps] = one.norms
    return trained


def _differences(tolerance: Tolerance, replicas: Mapping[int, _Trained]) -> Iterator[str]:
    """Yield how the replicas of one item differ; the first difference is certain."""
    first = next(iter(replicas.values()))
    numbers = sides_of({rank: format_count(len(one.names), "parameter") for rank, one in replicas.items()})
    if len(numbers) > 1:
        yield f"{first.title} has {on_sides(numbers)}"
    for steps in sorted(set.intersection(*(set(one.norms) for one in replicas.values()))):
        for name, *norms in zip(first.names, *(one.norms[steps] for one in replicas.values()), strict=False):
            if not all(_close(one, other, tolerance) for one, other in combinations(norms, 2)):
                shown = ["unknown" if norm is None else f"{norm:.9g}" for norm in norms]
                sides = on_sides(sides_of(dict(zip(replicas, shown, strict=True))))
                yield f"after {format_count(steps, 'step')} of {first.title} the norm of {name} is {sides}"
    ends = sides_of({rank: format_count(max(one.norms), "step") for rank, one in replicas.items()})
    if len(ends) > 1:
        yield f"{first.title} made {on_sides(ends)}"
    if all(norm is None for one in replicas.values() for norms in one.norms.values() for norm in norms):
        yield f"(the norms of {first.title} could not be computed)"


def _close(one: float | None, other: float | None, tolerance: Tolerance) -> bool:
    if one is None or other is None:
        return one is other
    same = math.isclose(one, other, rel_tol=tolerance.relative, abs_tol=tolerance.absolute)
    return same or (math.isnan(one) and math.isnan(other))
