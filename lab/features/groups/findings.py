"""Find groups and worlds that ranks created differently, or destroyed while others still used them.

Every rank must create every group, in the same order, whether or not it is a member: PyTorch identifies the members of
a group by the number of its `new_group`. A script may break this rule without harm. Findings report it only if a run
stopped over a group. The first group is created by a rendezvous, in which ranks connect to a store.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Literal

from lab.diagnosis import finding as f
from lab.diagnosis import wording
from lab.diagnosis.ends import Wait, Waiting, call_facts, find_waits, lines_of, waited_s
from lab.diagnosis.errors import has_timed_out
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import DETECTION_LAG_S
from lab.diagnosis.finding import Finding, FindingKind, Kind, Words, find_majority, sides_of, unique_lines
from lab.trace.model import Call, Group, Phase, RankTrace, StoreLookup
from lab.trace.steps import Step
from lab.words import capitalize_first, format_count, format_duration, format_ordinal, join_words, name_ranks


class GroupsDiffer(Finding):
    """A new_group that created different groups on some ranks."""

    kind: Kind = FindingKind.GROUPS
    number: int
    sides: tuple[f.Side, ...]
    """What the deviating ranks created, or all ranks without a majority; `what` is the list of members."""
    common: f.Side | None = None
    """What the others created."""
    deviation: Literal["", "left_out", "added"] = field(default="", metadata={"key": "slip"})

    def render(self) -> Words:
        """Say who created which group, and where."""
        made = wording.join_ranks((rank, _made(side)) for side in self.sides for rank in side.ranks)
        if self.common is None:
            head = f"ranks called new_group for different groups: it is the {format_ordinal(self.number)} new_group"
            return f"{head}: {'; '.join(made)}", _GROUP_RULE
        deviations = {"": "", "left_out": f": {name_ranks(self.ranks)} skipped that call", "added": ", an extra call"}
        whose = f"{'its' if len(self.ranks) == 1 else 'their'} {format_ordinal(self.number)} group"
        others = f"{name_ranks(self.others)} {_made(self.common)}{deviations[self.deviation]}"
        return f"{join_words(made)} as {whose}, but {others}", _GROUP_RULE


class GroupNotMade(Finding):
    """A new_group that ranks never completed, because a member never called it."""

    kind: Kind = FindingKind.GROUPS
    members: tuple[int, ...]
    missing: tuple[int, ...]
    """The members that never called it."""
    did: tuple[f.Activity, ...]
    at: tuple[str, ...] = ()

    def render(self) -> Words:
        """Name the ranks that never called new_group, and the ranks that waited there."""
        did = join_words(wording.describe_activities(self.did))
        there = f"{format_duration(self.seconds)}, at {join_words(self.at)}; {did}"
        head = f"{name_ranks(self.missing)} never called new_group for [{', '.join(map(str, self.members))}]"
        waiting = (rank for rank in sorted({*self.ranks, *self.others}) if rank not in self.missing)
        return head, f"{capitalize_first(name_ranks(waiting))} waited there for {there}."


class GroupDestroyed(Finding):
    """A group that ranks destroyed while others still used it."""

    kind: Kind = FindingKind.GROUPS
    gone: tuple[int, ...]
    entered: tuple[int, ...]
    alone: bool
    """Whether fewer ranks used it than destroyed it, so that they continued alone."""
    group: str = ""
    """Empty for the default group."""
    destroyed_at: tuple[str, ...] = ()
    used_at: tuple[str, ...] = ()
    failed: bool = False
    waited_s: float = 0.0
    did: tuple[f.Activity, ...] = ()

    def render(self) -> Words:
        """Say who destroyed the group, and who still used it."""
        gone, entered = name_ranks(self.gone), name_ranks(self.entered)
        group = f"group {self.group}" if self.group else "the default group"
        lines = join_words(filter(None, self.destroyed_at))
        destroyed = f"destroyed {group}{lines and f' at {lines}'}"
        step = f"{self.step} at {join_words(self.used_at)}"
        if self.alone:
            who = "it" if len(self.entered) == 1 else "they"
            return f"{entered} continued alone: {who} called {step}, when {gone} had {destroyed}"
        verb = "failed" if self.failed else f"waited {format_duration(self.waited_s)}"
        did = join_words(wording.describe_activities(self.did))
        head = f"{gone} {destroyed}, but {entered} still used it and {verb} in {step}; {did}"
        return head if self.ranks else (head, "Either side made a call too many or too few.")


class OtherGroup(Finding):
    """A call that a rank made in another group than the one in which others waited for it at the same line."""

    kind: Kind = FindingKind.DEADLOCK
    call: f.CallFacts
    wait: f.CallFacts
    waiting: tuple[int, ...]

    def render(self) -> Words:
        """Name both groups."""
        call, took = wording.describe_call(self.wait), wording.render_waited(self.seconds)
        waited = f"{name_ranks(self.waiting)} waited for it in {call}{took}"
        return f"rank {self.call.rank} called {wording.describe_wait(self.call)}, where {waited}"


class Rendezvous(Finding):
    """Ranks that did not meet in init_process_group."""

    kind: Kind = FindingKind.RENDEZVOUS
    how: Literal["addresses", "unanswered", "sizes", "same_rank", "beyond", "unconnected", "missing", "late"]
    address: str = ""
    sides: tuple[f.Side, ...] = ()
    """What ranks looked for, or expected."""
    silent: tuple[int, ...] = ()
    """Ranks that no store answered."""
    met: tuple[int, ...] = ()
    """Ranks that a store answered."""
    error: str = ""
    world_size: int = 0
    run_size: int = 0
    missing: int = 0
    """How many peers were missing."""
    absent: tuple[f.Activity, ...] = ()
    late_s: float = 0.0
    """Time from the failure of the first rank, which had waited for its time limit, to the arrival of the late ones."""
    stuck: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    """Ranks that had met the others, and ended as expected."""
    own: str = ""
    """Address of the run's own store, if ranks looked for another one in vain."""

    def render(self) -> Words:
        """Say what each rank looked for, and why it did not meet the others."""
        there, world = f"the store at {self.address} answers", self.world_size
        if self.how == "addresses":
            addresses = join_words(wording.join_ranks((rank, side.what) for side in self.sides for rank in side.ranks))
            silent = f"No store answered {name_ranks(self.silent)}." if self.silent else ""
            tip = "`lab run --rewrite-address` has all ranks use this run's store"
            return f"ranks used different addresses for the store of the rendezvous: {addresses} ({tip})", silent
        than = f", but {name_ranks(self.met)} reached one" if self.met else ""
        error = f' ("{self.error}")' if self.error else ""
        each = {
            "sizes": lambda side: f"{name_ranks(side.ranks)} expected {format_count(int(side.what), 'rank')}",
            "same_rank": lambda side: f"{name_ranks(side.ranks)} all reported rank {side.what}",
            "beyond": lambda side: f"rank {side.ranks[0]} reported rank {side.what}",
        }.get(self.how)
        sides = join_words(map(each, self.sides)) if each else ""
        met = "each other" if len(self.stuck) == len(self.met) else "the others"
        peers = "peers are" if self.missing > 1 else "a peer is"
        why = f"this run has {format_count(self.run_size, 'rank')}"
        if world <= self.run_size:
            did = join_words(wording.describe_activities(self.absent))
            why = f"{name_ranks(one.rank for one in self.absent)} did not connect to it ({did})"
        ranks, stuck = format_count(world, "rank"), name_ranks(self.stuck)
        store = f"this run's store is at tcp://{{MASTER_ADDR}}:{{MASTER_PORT}}, {self.own}"
        tip = f" ({store}; `lab run --rewrite-address` uses it)" if self.own else ""
        barrier = "call dist.barrier() before the script ends"
        it = "it" if len(self.stuck) == 1 else "them"
        ended = f"; {name_ranks(self.ended)} ended without waiting for {it} ({barrier})" if self.ended else ""
        where = "in `args` or after --"
        number, size = f"pass each rank its own: '{{rank}}' {where}", f"pass '{{world_size}}' {where}"
        return {
            "unanswered": f"no store answered {name_ranks(self.silent)} at {self.address}{than}{error}{tip}",
            "sizes": f"{there}, but ranks do not agree on the world size: {sides} ({size})",
            "same_rank": f"{there}, but {sides} ({number})",
            "beyond": f"{there}, but {sides} of a world of {world}: its ranks are 0 to {world - 1}",
            "unconnected": f"{there} and all {ranks} reached it; {stuck} did not get connected to {met}{ended}",
            "missing": f"{there}, but {peers} missing: {name_ranks(self.met)} expected {ranks}, but {why}"
            + (f" ({size})" if world > self.run_size else ""),
            "late": f"{there}, but {name_ranks(self.ranks)} reached it only {format_duration(self.late_s)} after "
            f"{name_ranks(self.met)} had given up",
        }[self.how]


@dataclass
class _World:
    """What a rank did with groups between one init_process_group and the next."""

    begun: Phase
    """The call of init_process_group."""
    made: list[Phase] = field(default_factory=list)
    """Each new_group that all ranks have to call, in order."""
    destroyed: Phase | None = None
    """When the rank destroyed the default group, and with it all other groups."""


def _worlds_of(rank: RankTrace, groups: Mapping[str, Group]) -> list[_World]:
    """Return the worlds of a rank, in order."""
    worlds: list[_World] = []
    for phase in rank.phases:
        if phase.name == "init_process_group":
            if not worlds or worlds[-1].destroyed is not None:
                worlds.append(_World(phase))
            elif not worlds[-1].made:  # a second attempt after a failed one; otherwise PyTorch refuses it
                worlds[-1].begun = phase
        elif worlds and phase.name == "new_group" and phase.members:
            worlds[-1].made.append(phase)
        elif worlds and _is_end_of_world(phase, groups):
            worlds[-1].destroyed = phase
    return worlds


def _is_end_of_world(phase: Phase, groups: Mapping[str, Group]) -> bool:
    """Return whether a phase is the destruction of the default group."""
    group = groups.get(phase.group)
    return phase.name == "destroy_process_group" and (group is None or group.plain_label == "default")


def find_world_faults(evidence: Evidence) -> list[Finding]:
    """Return faults of worlds or groups that can stop a run that hung or failed."""
    return find_split_worlds(evidence) or find_group_faults(evidence)


NewGroups = Mapping[int, Sequence[Phase]]
"""By rank: its calls of `new_group` in one world."""


def find_group_faults(evidence: Evidence) -> list[Finding]:
    """Return faults of groups that can stop a run that hung or failed, the earliest first."""
    worlds = {rank: _worlds_of(trace, evidence.trace.groups) for rank, trace in evidence.trace.ranks.items()}
    waits, turns = find_waits(evidence, until_failed=True), range(max(map(len, worlds.values()), default=0))
    made = [{rank: ours[turn].made for rank, ours in worlds.items() if len(ours) > turn} for turn in turns]
    findings = (_made_otherwise(one, evidence) or _not_made(one, evidence, waits) for one in made)
    return [*filter(None, findings)] or [*_destroyed(evidence, worlds, waits)]


# -- new_group


def _made_otherwise(made: NewGroups, evidence: Evidence) -> Finding | None:
    """Return the first new_group that differs between ranks, if a rank got stuck in this group or a later one."""
    for number in range(max(map(len, made.values()), default=0)):
        here = {rank: phases[number] for rank, phases in made.items() if len(phases) > number}
        if len({phase.members for phase in here.values()}) > 1:
            # A collective that never ended, in a group from this new_group or a later one, counts too.
            unended = (step.group.name.partition("'")[0] for step in evidence.steps if step.state != "completed")
            stuck = any(name.isdecimal() and int(name) > number for name in unended)
            stuck = stuck or any(_stuck(rank, phases[number:], evidence) for rank, phases in made.items())
            return _difference(number, here, made) if stuck else None
    return None


def _stuck(rank: int, phases: Sequence[Phase], evidence: Evidence) -> bool:
    """Return whether a rank never completed one of these calls, or failed in the last of them."""
    calls, facts = evidence.calls(rank), evidence.ranks.get(rank)
    last = bool(phases) and (not calls or calls[-1].begin < phases[-1].begin)
    failed = last and facts is not None and facts.failed and evidence.trace.ranks[rank].phases[-1] is phases[-1]
    return failed or any(phase.end is None for phase in phases)


def _difference(number: int, here: Mapping[int, Phase], made: NewGroups) -> Finding:
    common, deviating = find_majority({rank: phase.members for rank, phase in here.items()})
    others = tuple(rank for rank in here if rank not in deviating)
    deviation: Literal["", "left_out", "added"] = ""
    if common is not None:
        rest, *tails = ([phase.members for phase in made[rank][number:]] for rank in (others[0], *deviating))
        left_out, added = all(tail == rest[1:] for tail in tails), all(tail[1:] == rest for tail in tails)
        deviation = "left_out" if left_out else "added" if added else ""
    return GroupsDiffer(
        number=number + 1,
        sides=_sides({rank: here[rank] for rank in deviating} or here),
        common=_sides({others[0]: here[others[0]]})[0] if common is not None else None,
        deviation=deviation,
        ranks=deviating,
        others=others,
        step=f"new_group #{number + 1}",
        lines=tuple(here[rank].source for rank in (*deviating, *others)),
    )


def _sides(phases: Mapping[int, Phase]) -> tuple[f.Side, ...]:
    """Return which groups ranks created, and where."""
    made = {rank: (f"[{', '.join(map(str, phase.members))}]", phase.source) for rank, phase in phases.items()}
    sides = f.group_ranks(made)
    return tuple(f.Side(ranks=tuple(ranks), what=what, lines=(line,)) for (what, line), ranks in sides.items())


def _not_made(made: NewGroups, evidence: Evidence, waits: Mapping[int, Wait]) -> Finding | None:
    """Return a new_group that ranks never completed, because a member never called it."""
    stuck = {one: of for one, of in made.items() if of and of[-1].end is None and evidence.ranks[one].alive}
    number = min(map(len, stuck.values()), default=0)
    ours = {rank: phases[-1] for rank, phases in stuck.items() if len(phases) == number}
    phase = next(iter(ours.values()), None)
    missing = tuple(rank for rank in phase.members if len(made.get(rank, ())) < number) if phase is not None else ()
    if phase is None or not missing:
        return None
    lines = unique_lines(one.source for one in ours.values())
    elsewhere = [evidence.last_location(evidence.ranks[rank]) for rank in missing if rank in evidence.ranks]
    there = [location.at for location in elsewhere if location is not None]
    waiting, came_alone = all(rank in waits for rank in missing), len(ours) < len(missing)
    named = tuple(ours) if waiting and came_alone else missing
    return GroupNotMade(
        kind=FindingKind.GROUPS if waiting else FindingKind.NEVER_ENTERED,
        members=tuple(phase.members),
        missing=missing,
        did=Waiting(evidence, waits).did(missing),
        at=lines,
        ranks=named,
        others=tuple(rank for rank in (*ours, *missing) if rank not in named),
        step=f"new_group #{number}",
        lines=(*there, *lines) if named is missing else (*lines, *there),
        seconds=_since(ours.values(), evidence),
    )


def _since(began: Iterable[Phase | Call], evidence: Evidence) -> float:
    """Return the seconds from the first of these until the run was over."""
    return round(max(0.0, evidence.end_s - min(one.begin for one in began)), 6)


def find_other_groups(run: Waiting) -> list[Finding]:
    """Return the only rank whose last call at a line was in another group than the one that waits for it there.

    No other rank made that call at this line.
    """
    evidence, culprits = run.evidence, dict[int, Finding]()
    for wait in run.waits.values():
        here = (wait.call.op, wait.call.path)
        for rank in () if wait.step.message else wait.step.missing:
            call = next((one for one in reversed(evidence.calls(rank)) if (one.op, one.path) == here), wait.call)
            step = evidence.step(call) if call.group != wait.call.group else None
            if step is None or [(one.op, one.path) for one in step.calls.values()].count(here) > 1:
                continue
            waiting = [one for one in run.waits.values() if one.step is wait.step]
            culprits[rank] = OtherGroup(
                call=call_facts(call, step),
                wait=wait.facts,
                waiting=tuple(sorted(one.rank for one in waiting)),
                ranks=(rank,),
                others=tuple(sorted({*run.waits} - {rank})),
                step=wait.step.title,
                lines=unique_lines([call.source, wait.call.source]),
                seconds=waited_s(evidence, waiting),
            )
    return [*culprits.values()] if len(culprits) == 1 else []


# -- destroy_process_group


def _destroyed(evidence: Evidence, worlds: Mapping[int, list[_World]], waits: Mapping[int, Wait]) -> Iterator[Finding]:
    """Yield steps that ranks waited or failed in, whose missing ranks had destroyed the group and lived on."""
    hits = filter(None, map(evidence.broken_call, evidence.ranks))
    for step in {step.number: step for _, step in hits if not step.message}.values():
        ends = ((rank, _end_of_group(rank, step.group, evidence)) for rank in step.missing)
        if gone := {rank: end for rank, end in ends if end and _lived_on(evidence, rank, end, worlds[rank])}:
            yield _left_group(step, gone, evidence, waits)


def _end_of_group(rank: int, group: Group, evidence: Evidence) -> Phase | None:
    """Return when a rank destroyed a group, by itself or with all groups."""
    trace = evidence.trace.ranks.get(rank)
    begins = [call.begin for call in evidence.calls(rank) if call.group == group.name]
    for phase in trace.phases if trace is not None else ():
        used = any(begin < phase.begin for begin in begins) and _is_end_of_world(phase, evidence.trace.groups)
        if phase.name == "destroy_process_group" and (phase.group == group.name or used):
            return phase
    return None


def _lived_on(evidence: Evidence, rank: int, end: Phase, worlds: Iterable[_World]) -> bool:
    """Return whether a rank lived on for long after it destroyed a group, or started a new world.

    Otherwise the others only noticed the end of the rank.
    """
    facts = evidence.ranks[rank]
    ended = (facts.ended or 0.0) - evidence.trace.origin
    anew = any(world.begun.begin > end.begin for world in worlds)
    return anew or facts.alive or (facts.left and ended > end.begin + DETECTION_LAG_S)


def _left_group(step: Step, gone: Mapping[int, Phase], evidence: Evidence, waits: Mapping[int, Wait]) -> Finding:
    entered, calls = tuple(sorted(step.calls)), step.calls.values()
    absent = [rank for rank in step.missing if rank in gone or evidence.ranks[rank].left]
    alone, failed = len(absent) > len(entered), any(call.error for call in calls)
    took, destroyed = _since(calls, evidence), [phase.source for phase in gone.values()]
    used = [step.calls[rank].source for rank in (entered if alone else step.calls)]
    there = [{call.source for call in evidence.calls(rank) if call.group == step.group.name} for rank in gone]
    either = len(absent) == len(entered) and all(lines.issuperset(used) for lines in there)
    return GroupDestroyed(
        kind=FindingKind.WENT_ALONE if alone else FindingKind.GROUPS,
        gone=tuple(gone),
        entered=entered,
        alone=alone,
        group="" if step.group.plain_label == "default" else step.group.title,
        destroyed_at=tuple(destroyed),
        used_at=lines_of(calls),
        failed=failed,
        waited_s=took,
        did=Waiting(evidence, waits).did(gone),
        ranks=() if either else entered if alone else tuple(gone),
        others=(*entered, *gone) if either else tuple(gone) if alone else entered,
        step=step.title,
        lines=(*used, *destroyed) if alone else (*destroyed, *used),
        seconds=None if failed else took,
    )


# -- ranks that did not meet in init_process_group, by the stores that they tried to reach

_LOOPBACK = re.compile(r"localhost|127\.|::1$")
"""Addresses that each node has for itself."""
Lookups = Mapping[int, StoreLookup]
"""By rank: the store that it tried to reach in its last init_process_group."""


def explain_rendezvous(evidence: Evidence) -> list[Finding]:
    """Return what blocked ranks in init_process_group, or made them fail there; empty if nothing was recorded."""
    lookups = {rank: of for rank in evidence.ranks if (of := _lookup(evidence, rank)) is not None}
    stuck = tuple(rank for rank in lookups if _is_stuck(evidence, rank))
    met = {rank for rank, of in lookups.items() if of.has_answer and _met(evidence, rank, stuck)}
    asked = {rank: of for rank, of in lookups.items() if rank in stuck or rank in met}
    return _rendezvous(_unmet(asked, stuck, evidence), asked, evidence) if stuck else []


def _unmet(asked: Lookups, stuck: tuple[int, ...], evidence: Evidence) -> Rendezvous | None:
    silent = tuple(rank for rank, of in asked.items() if not of.has_answer)
    met = tuple(rank for rank, of in asked.items() if of.has_answer)
    addresses = {rank: f"{of.host}:{of.port}" for rank, of in asked.items()}
    if len(set(addresses.values())) > 1:
        sides = sides_of({rank: f"at {address}" for rank, address in addresses.items()})
        deviating = find_majority(addresses)[1]
        return Rendezvous(how="addresses", sides=sides, silent=silent if met else (), ranks=deviating)
    # No store answers at the address, unless rank 0 hosts the store there and only waits for the others.
    hosts = [rank for rank in silent if asked[rank].asked_rank == 0 and not _is_runs(asked[rank], evidence)]
    if silent and not (hosts and (met or len(silent) == 1)):
        why = next((of.error.partition("\n")[0] for of in asked.values() if of.error), "")
        plan, is_own = evidence.record.plan(), all(_is_runs(asked[rank], evidence) for rank in silent)
        own = "" if is_own or not plan.master_addr else f"{plan.master_addr}:{plan.master_port}"
        return Rendezvous(how="unanswered", address=addresses[silent[0]], silent=silent, met=met, error=why, own=own)
    return _numbered(asked, stuck, evidence) if met else None  # of rank 0 alone, it is unknown whether it hosts a store


def cannot_meet(evidence: Evidence, addresses: Collection[str]) -> bool | None:
    """Return whether every rank waits in init_process_group for what cannot come; None: a rank got past it.

    Args:
        evidence: of a run that still goes.
        addresses: of the nodes.
    """
    traces = evidence.trace.ranks.values()
    if any(phase.end is not None for trace in traces for phase in trace.phases if phase.name == "init_process_group"):
        return None
    facts = next(iter(explain_rendezvous(evidence)), None)
    waits = all(_lookup(evidence, rank) is not None and not of.over for rank, of in evidence.ranks.items())
    if not waits or not isinstance(facts, Rendezvous):
        return False
    elsewhere = facts.how == "unanswered" and not _may_answer(facts.address.rpartition(":")[0], addresses)
    exceeds_run = facts.how == "missing" and facts.world_size > facts.run_size
    return elsewhere or exceeds_run or facts.how in ("sizes", "same_rank", "beyond")


def _may_answer(host: str, addresses: Collection[str]) -> bool:
    """Return whether a store of another node can have this address. A name can be that of any node."""
    if _LOOPBACK.match(host):
        return any(map(_LOOPBACK.match, addresses))
    return not re.fullmatch(r"[\d.]+|.*:.*", host) or host in addresses


def _rendezvous(facts: Rendezvous | None, asked: Lookups, evidence: Evidence) -> list[Finding]:
    if facts is None:
        return []
    others = tuple(rank for rank in asked if rank not in facts.ranks)
    known = {rank: evidence.last_location(evidence.ranks[rank]) for rank in facts.ranks}
    locations = {rank: location.at for rank, location in known.items() if location is not None}
    lines = tuple(asked[one].source if one in asked else locations.get(one, "") for one in (*facts.ranks, *others))
    return [replace(facts, others=others, lines=lines)]


def find_split_worlds(evidence: Evidence) -> list[Finding]:
    """Return ranks that met at one store but disagree about the number of ranks, or about who they are.

    Whatever they do then hangs or fails.
    """
    met: dict[str, dict[int, StoreLookup]] = {}
    for rank, facts in evidence.ranks.items():
        lookup = None if facts.left else _lookup(evidence, rank)
        if lookup is None:
            continue
        if _in_world(evidence, rank):
            shared = lookup.host == evidence.record.plan().master_addr or not _LOOPBACK.match(lookup.host)
            own = "" if shared else facts.node
            met.setdefault(f"{lookup.host}:{lookup.port} {own}", {})[rank] = lookup
    met = {where: asked for where, asked in met.items() if any(of.has_answer for of in asked.values())}
    return [one for asked in met.values() for one in _rendezvous(_disagreement(asked), asked, evidence)]


def _in_world(evidence: Evidence, rank: int) -> bool:
    """Return whether a rank has not destroyed the last world that it began."""
    worlds = _worlds_of(evidence.trace.ranks[rank], evidence.trace.groups)
    return bool(worlds) and worlds[-1].destroyed is None


def _met(evidence: Evidence, rank: int, stuck: Sequence[int]) -> bool:
    """Return whether a rank is in the world that others are stuck in, or was in it to its end."""
    counts = {one: len(_worlds_of(evidence.trace.ranks[one], evidence.trace.groups)) for one in (rank, *stuck)}
    return _in_world(evidence, rank) or (evidence.ranks[rank].left and counts[rank] >= max(counts.values()))


def _tries(evidence: Evidence, rank: int) -> list[Phase]:
    """Return a rank's calls of init_process_group."""
    trace = evidence.trace.ranks.get(rank)
    return [phase for phase in trace.phases if phase.name == "init_process_group"] if trace is not None else []


def _lookup(evidence: Evidence, rank: int) -> StoreLookup | None:
    phases, trace = _tries(evidence, rank), evidence.trace.ranks.get(rank)
    stores = trace.stores if trace is not None else []
    return stores[-1] if phases and stores and stores[-1].begin >= phases[-1].begin else None


def _is_stuck(evidence: Evidence, rank: int) -> bool:
    """Return whether a rank never completed its last init_process_group, or failed there."""
    phases = _tries(evidence, rank)
    location = evidence.last_location(evidence.ranks[rank])
    raised = evidence.ranks[rank].failed and location is not None and location.call == "init_process_group"
    return phases[-1].end is None or raised


def _is_runs(lookup: StoreLookup, evidence: Evidence) -> bool:
    """Return whether the store at that address is the lab's own."""
    plan = evidence.record.plan()
    return (lookup.host, lookup.port) == (plan.master_addr, plan.master_port)


def _numbered(asked: Lookups, stuck: tuple[int, ...], evidence: Evidence) -> Rendezvous:
    """Return what is wrong at a store that answers: missing ranks, or duplicate rank numbers."""
    if (disagreement := _disagreement(asked)) is not None:
        return disagreement
    first = next(iter(asked.values()))
    world, came, run_size = first.world_size, {rank: of.asked_rank for rank, of in asked.items()}, len(evidence.ranks)
    address, met = f"{first.host}:{first.port}", tuple(came)
    facts = Rendezvous(how="unconnected", address=address, world_size=world, run_size=run_size, met=met, stuck=stuck)
    failed_at = min((evidence.ranks[rank].raised or inf for rank in stuck), default=inf) + DETECTION_LAG_S
    left = (rank for rank in met if evidence.ranks[rank].left and (evidence.ranks[rank].ended or 0) < failed_at)
    facts = replace(facts, ended=tuple(left))
    if beyond := {rank: str(number) for rank, number in came.items() if number >= world}:
        sides = tuple(f.Side(ranks=(rank,), what=number) for rank, number in beyond.items())
        return replace(facts, how="beyond", sides=sides, ranks=tuple(beyond))
    if not (missing := len(set(range(world)) - set(came.values()))):
        return _late(facts, asked, evidence) or facts
    absent = () if world > run_size else tuple(rank for rank in evidence.ranks if rank not in asked)
    return replace(facts, how="missing", missing=missing, absent=Waiting(evidence, {}).did(absent), ranks=absent)


def _late(facts: Rendezvous, asked: Lookups, evidence: Evidence) -> Rendezvous | None:
    """Return the ranks that reached the store after another one's time limit; None if all were in time."""
    failed = {rank: _tries(evidence, rank)[-1].end for rank in facts.stuck if has_timed_out(evidence.ranks[rank])}
    failed_at, first = min(((end, rank) for rank, end in failed.items() if end is not None), default=(inf, -1))
    late = {rank: of.begin - failed_at for rank, of in asked.items() if of.begin > failed_at}
    return replace(facts, how="late", met=(first,), ranks=tuple(late), late_s=min(late.values())) if late else None


def _disagreement(asked: Lookups) -> Rendezvous | None:
    """Return ranks that expect different world sizes, or that use the same rank number."""
    first = next(iter(asked.values()))
    address = f"{first.host}:{first.port}"
    worlds = {rank: str(of.world_size) for rank, of in asked.items()}
    if len(set(worlds.values())) > 1:
        return Rendezvous(how="sizes", address=address, sides=sides_of(worlds), ranks=find_majority(worlds)[1])
    same = [one for one in sides_of({rank: str(of.asked_rank) for rank, of in asked.items()}) if len(one.ranks) > 1]
    return Rendezvous(how="same_rank", address=address, sides=tuple(same)) if same else None


# -- in words

_GROUP_RULE = "Every rank has to call new_group for every group, in the same order, whether it is a member or not."


def _made(side: f.Side) -> str:
    return f"made {side.what}{wording.render_lines(side.lines[:1])}"
