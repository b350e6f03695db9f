"""Expectations that need traces: that ranks called what is stated, or what a snapshot has, and trained the same."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.replicas import sides
from lab.errors import ScenarioError
from lab.record.read import Record
from lab.record.result import Expectation
from lab.spec.calls import CallPattern, parse_calls
from lab.spec.expect import SNAPSHOT
from lab.spec.expressions import RankVariables
from lab.spec.scenario import Expect, Tolerance
from lab.trace.change_words import tell_changes
from lab.trace.model import Call, Group, RankTrace
from lab.trace.notation import Departure, first_departure, render_call
from lab.trace.read import read_trace
from lab.trace.sequence import settled_calls, texts_of
from lab.trace.snapshot import Calls, counted
from lab.words import listing, name_ranks, ordinal, plural

_MOST_TOLD = 50
_NOT_RECORDED = "calls were not recorded: tracing was off; run it without --no-trace and trace: false"


def check_calls(expect: Expect, record: Record, variables: Mapping[int, RankVariables]) -> Iterator[Expectation]:
    """One expectation for each rank of which calls are stated: as stated, or the first place where they differ."""
    stated = expect.calls
    if stated is None or stated == SNAPSHOT:
        return
    trace = read_trace(record)
    by_rank = stated if isinstance(stated, Mapping) else dict.fromkeys(variables, stated)
    for rank, items in sorted(by_rank.items()):
        of_rank = trace.ranks.get(rank)
        try:
            if of_rank is None or not of_rank.recorded:
                raise ScenarioError("no trace of this rank is on record" if trace.recorded else _NOT_RECORDED)
            if of_rank.cut:
                raise ScenarioError(f"recording ended early: {of_rank.cut}")
            patterns = [pattern for item in items for pattern in parse_calls(item, variables[rank])]
        except ScenarioError as error:  # the run is over: what cannot be compared is not met, and says why
            yield Expectation(what="calls", rank=rank, expected="; ".join(items), got=f"({error.message})", met=False)
            continue
        yield _compare(patterns, of_rank, trace.groups)


def _compare(patterns: list[CallPattern], rank: RankTrace, groups: Mapping[str, Group]) -> Expectation:
    departure = first_departure(patterns, rank.calls, groups)
    expected, got = "as stated", f"as stated: {plural(len(rank.calls), 'call')}"
    if departure is not None:
        expected = "no further call" if departure.expected is None else departure.expected.text
        got = _got(departure, rank, groups)
    return Expectation(what="calls", rank=rank.rank, expected=expected, got=got, met=departure is None)


def _got(departure: Departure, rank: RankTrace, groups: Mapping[str, Group]) -> str:
    if departure.got is not None:
        phase = departure.expected is not None and departure.expected.phase is not None
        return _shown(departure.got, groups, phase=phase)
    more = "nothing like it" if departure.after_gap else "nothing more"
    return f"{more}, after {_shown(rank.calls[-1], groups)}" if rank.calls else "no call at all"


def _shown(call: Call, groups: Mapping[str, Group], *, phase: bool = False) -> str:
    where = f" at {call.source}" if call.source else ""
    return f"call {call.index}: {render_call(call, groups, phase=phase)}{where}"


def not_comparable(evidence: Evidence) -> str:
    """Why what ranks called cannot be held against a snapshot; empty where it can."""
    trace = evidence.trace
    if not trace.recorded:
        return _NOT_RECORDED
    cut = next((rank for rank in trace.ranks.values() if rank.cut), None)
    return f"recording of rank {cut.rank} ended early: {cut.cut}" if cut is not None else ""


def check_snapshot(name: str, before: Calls, evidence: Evidence, *, whole: bool) -> list[Expectation]:
    """Whether the ranks called what a snapshot has: one expectation for all that they did otherwise in the same way.

    Of a run that is not `whole`, nothing is missing after the last call of a rank that did not come to its end.
    """
    calls, now = settled_calls(evidence.trace), texts_of(evidence.trace)
    ended = {rank: whole or facts.left for rank, facts in evidence.ranks.items()}
    told = tell_changes(before, now, lambda rank, i: calls[rank][i].source, than="the snapshot", ended=ended)
    if told:
        found = [
            Expectation(
                what="snapshot",
                rank=one.ranks[0] if len(one.ranks) == 1 else None,
                expected=name,
                got=one.text,
                met=False,
            )
            for one in told[:_MOST_TOLD]
        ]
        if len(told) > _MOST_TOLD:
            more = f"and {len(told) - _MOST_TOLD} more differences"
            found.append(Expectation(what="snapshot", expected=name, got=more, met=False))
        return found
    left = all(ended.get(rank, whole) for rank in before)
    got = "the same" if left else "the same, as far as the ranks came"
    return [Expectation(what="snapshot", expected=name, got=f"{got}: {counted(now)}", met=left)]


# -- Whether ranks trained the same: what `expect: replicas: equal` asks for, by the norms that are on record


Norms = Sequence[float | None]


class _Trained(NamedTuple):
    """What one rank trains in one place: a DDP module, or the parameters of an optimizer without one."""

    title: str
    names: Sequence[str]
    """Of its parameters, in their order."""
    norms: Mapping[int, Norms]
    """Of each parameter, after so many steps."""


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
    numbers = sides({rank: plural(len(one.names), "parameter") for rank, one in replicas.items()})
    if len(numbers) > 1:
        return f"{first.title} has {_on(numbers)}"
    for steps in sorted(set.intersection(*(set(one.norms) for one in replicas.values()))):
        for place, name in enumerate(first.names):
            norms = {rank: one.norms[steps][place] for rank, one in replicas.items()}
            if not all(_close(norms[rank], other, tolerance) for rank in norms for other in norms.values()):
                shown = sides({rank: "unknown" if norm is None else f"{norm:.9g}" for rank, norm in norms.items()})
                return f"after {plural(steps, 'step')} of {first.title} the norm of {name} is {_on(shown)}"
    ends = sides({rank: plural(max(one.norms), "step") for rank, one in replicas.items()})
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
