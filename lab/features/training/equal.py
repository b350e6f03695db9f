"""Whether ranks trained the same: what `expect: replicas: equal` asks for, by the norms that are on record."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import group_ranks
from lab.frozen import dataclass
from lab.plan.plan import Plan
from lab.record.result import Expectation
from lab.spec.declare import key
from lab.spec.expressions import RankVariables
from lab.spec.kinds import choice
from lab.spec.scenario import Tolerance
from lab.trace.model import RankTrace
from lab.words import listing, name_ranks, ordinal, plural

Norms = Sequence[float | None]


class _Trained(NamedTuple):
    """What one rank trains in one place: a DDP module, or the parameters of an optimizer without one."""

    title: str
    names: Sequence[str]
    """Of its parameters, in their order."""
    norms: Mapping[int, Norms]
    """Of each parameter, after so many steps."""


@dataclass(frozen=True, kw_only=True)
class ReplicasKeys:
    """What scenarios say of replicas."""

    replicas: str | None = key(None, choice(("equal",)), "replicas: equal", "not checked")
    """`equal`: what ranks train must be the same on all of them. Compared are the norms of all parameters of each
    DistributedDataParallel module and of each other optimizer, after its steps 1, 2, 4, 8, ... and the last, within
    `tolerance`."""


def judge_replicas(
    _: str, plan: Plan, evidence: Evidence, variables: Mapping[int, RankVariables], __: bool | None
) -> list[Expectation]:
    """The expectation of a run's scenario."""
    return [check_replicas(plan.scenario.expect.tolerance, evidence, len(variables))]


def check_replicas(tolerance: Tolerance, evidence: Evidence, world_size: int) -> Expectation:
    """The expectation that whatever ranks train is the same on all of them; not met where that is not known."""
    problem = _problem(tolerance, evidence, range(world_size))
    return Expectation(what="replicas", expected="equal", got=problem or "equal", met=problem is None)


def _problem(tolerance: Tolerance, evidence: Evidence, ranks: Sequence[int]) -> str | None:
    traces = evidence.trace.ranks
    missing = [rank for rank in ranks if rank not in traces or not traces[rank].recorded]
    if missing:
        return f"(no trace of {name_ranks(missing)} is on record)"
    by_rank = {rank: dict(_trained(traces[rank])) for rank in ranks}
    places = dict.fromkeys(key for of_rank in by_rank.values() for key in of_rank)
    if not places:
        return "(no step of an optimizer is on record)"
    for place in places:
        replicas = {rank: of_rank[place] for rank, of_rank in by_rank.items() if place in of_rank}
        lacking = [rank for rank in ranks if rank not in replicas]
        if lacking:
            return (
                f"{next(iter(replicas.values())).title} is on {name_ranks(replicas)}, and not on {name_ranks(lacking)}"
            )
        problem = _difference(tolerance, replicas)
        if problem:
            return problem
    return None


def _trained(trace: RankTrace) -> Iterator[tuple[tuple[str, int], _Trained]]:
    """What a rank trained: each by what it is and its turn among those."""
    for turn, module in enumerate(trace.modules, 1):
        names = [parameter.name for parameter in module.parameters]
        if module.norms:
            yield ("module", turn), _Trained(f"the DDP module at {module.source}", names, module.norms)
    for number in dict.fromkeys(number for number, _ in trace.turns):
        turns = {steps: turn for (of, steps), turn in trace.turns.items() if of == number}
        first = next(iter(turns.values()))
        names = [f"its {ordinal(place + 1)} parameter" for place in range(len(first.sizes))]
        title = f"the optimizer that steps at {first.source}"
        yield ("optimizer", number), _Trained(title, names, {steps: turn.norms for steps, turn in turns.items()})


def _difference(tolerance: Tolerance, replicas: Mapping[int, _Trained]) -> str | None:
    """The first thing in which the replicas of one thing differ."""
    first = next(iter(replicas.values()))
    numbers = group_ranks({rank: plural(len(one.names), "parameter") for rank, one in replicas.items()})
    if len(numbers) > 1:
        return f"{first.title} has {_on(numbers)}"
    for steps in sorted(set.intersection(*(set(one.norms) for one in replicas.values()))):
        for place, name in enumerate(first.names):
            norms = {rank: one.norms[steps][place] for rank, one in replicas.items()}
            if not all(_close(norms[rank], other, tolerance) for rank in norms for other in norms.values()):
                shown = group_ranks(
                    {rank: "unknown" if norm is None else f"{norm:.9g}" for rank, norm in norms.items()}
                )
                return f"after {plural(steps, 'step')} of {first.title} the norm of {name} is {_on(shown)}"
    ends = group_ranks({rank: plural(max(one.norms), "step") for rank, one in replicas.items()})
    if len(ends) > 1:
        return f"{first.title} made {_on(ends)}"
    if all(norm is None for one in replicas.values() for norms in one.norms.values() for norm in norms):
        return f"(the norms of {first.title} cannot be read)"
    return None


def _on(by_what: Mapping[str, Sequence[int]]) -> str:
    return listing(f"{what} on {name_ranks(ranks)}" for what, ranks in by_what.items())


def _close(one: float | None, other: float | None, tolerance: Tolerance) -> bool:
    if one is None or other is None:
        return one is other
    same = math.isclose(one, other, rel_tol=tolerance.relative, abs_tol=tolerance.absolute)
    return same or (math.isnan(one) and math.isnan(other))
