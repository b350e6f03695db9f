"""Groups and worlds that ranks made otherwise than others did, or destroyed while others still used them.

Every rank has to make every group, in the same order, whether it is a member or not: PyTorch finds the members of a
group by the number of its `new_group`. A script may break that unharmed; it is told where a run stopped over a group.
The first group is made by a rendezvous, where ranks look for a store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from lab.diagnosis import finding as f
from lab.diagnosis.ends import Wait, Waiting, find_waits, lines_of
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import SEEN_LATER_S
from lab.diagnosis.finding import Finding, FindingKind, Kind, Words, majority, sides_of, unique_lines
from lab.diagnosis.wording import at, describe_activities, join_ranks
from lab.trace.model import Call, Group, Mark, StoreLookup, World, is_end_of_world, worlds_of
from lab.trace.steps import Step
from lab.words import capitalize_first, format_count, format_duration, format_ordinal, join_words, name_ranks


class GroupsDiffer(Finding):
    """A new_group that made another group on some ranks."""

    kind: Kind = FindingKind.GROUPS
    number: int
    sides: tuple[f.Side, ...]
    """What the odd ranks made, or everybody where nobody is odd; `what` is the list of members."""
    common: f.Side | None = None
    """What the others made."""
    slip: Literal["", "left_out", "added"] = ""

    def render(self) -> Words:
        """Who made which group, and where."""
        made = join_ranks((rank, _made(side)) for side in self.sides for rank in side.ranks)
        if self.common is None:
            head = f"the {format_ordinal(self.number)} new_group of ranks was not for the same group"
            return f"{head}: {'; '.join(made)}", _GROUP_RULE
        slip = {"": "", "left_out": f": {name_ranks(self.ranks)} left that one out", "added": ", a group more"}
        whose = f"{'its' if len(self.ranks) == 1 else 'their'} {format_ordinal(self.number)} group"
        others = f"{name_ranks(self.others)} {_made(self.common)}{slip[self.slip]}"
        return f"{join_words(made)} as {whose}, where {others}", _GROUP_RULE


class GroupNotMade(Finding):
    """A new_group that ranks never came out of, because a member never came to it."""

    kind: Kind = FindingKind.GROUPS
    members: tuple[int, ...]
    did: tuple[f.Activity, ...]
    at: tuple[str, ...] = ()

    def render(self) -> Words:
        """Who never called new_group, and who waited there."""
        there = (
            f"{format_duration(self.seconds)}, at {join_words(self.at)}; {join_words(describe_activities(self.did))}"
        )
        head = f"{name_ranks(self.ranks)} never called new_group for [{', '.join(map(str, self.members))}]"
        return head, f"{capitalize_first(name_ranks(self.others))} waited there {there}."


class GroupDestroyed(Finding):
    """A group that ranks destroyed while others still used it."""

    kind: Kind = FindingKind.GROUPS
    gone: tuple[int, ...]
    entered: tuple[int, ...]
    alone: bool
    """Whether those that used it are fewer, and so went on alone."""
    group: str = ""
    """Empty for the default group."""
    destroyed_at: tuple[str, ...] = ()
    used_at: tuple[str, ...] = ()
    failed: bool = False
    waited_s: float = 0.0
    did: tuple[f.Activity, ...] = ()

    def render(self) -> Words:
        """Who destroyed the group, and who still used it."""
        gone, entered = name_ranks(self.gone), name_ranks(self.entered)
        group = f"group {self.group}" if self.group else "the default group"
        destroyed = f"destroyed {group} at {join_words(self.destroyed_at)}"
        step = f"{self.step} at {join_words(self.used_at)}"
        if self.alone:
            who = "it" if len(self.entered) == 1 else "they"
            return f"{entered} went on alone: {who} called {step}, when {gone} had {destroyed}"
        verb = "failed" if self.failed else f"waited {format_duration(self.waited_s)}"
        did = join_words(describe_activities(self.did))
        return f"{gone} {destroyed}, where {entered} still used it and {verb} in {step}; {did}"


class Rendezvous(Finding):
    """Ranks that did not find each other in init_process_group."""

    kind: Kind = FindingKind.RENDEZVOUS
    how: Literal["addresses", "unanswered", "sizes", "same_rank", "beyond", "unconnected", "missing"]
    address: str = ""
    sides: tuple[f.Side, ...] = ()
    """What ranks looked at, or expected."""
    silent: tuple[int, ...] = ()
    """Whom no store answered."""
    met: tuple[int, ...] = ()
    """Who found one."""
    error: str = ""
    world_size: int = 0
    run_size: int = 0
    missing: int = 0
    """How many peers were missing."""
    absent: tuple[f.Activity, ...] = ()
    stuck: tuple[int, ...] = ()

    def render(self) -> Words:
        """What each rank looked for, and why it did not meet the others."""
        there, world = f"the store at {self.address} is there", self.world_size
        if self.how == "addresses":
            looked = join_words(join_ranks((rank, side.what) for side in self.sides for rank in side.ranks))
            silent = f"None answered {name_ranks(self.silent)}." if self.silent else ""
            return f"ranks looked for the store of the rendezvous at different addresses: {looked}", silent
        than = f", where {name_ranks(self.met)} found one" if self.met else ""
        error = f" ({self.error})" if self.error else ""
        each = {
            "sizes": lambda side: f"{name_ranks(side.ranks)} expected {format_count(int(side.what), 'rank')}",
            "same_rank": lambda side: f"{name_ranks(side.ranks)} all said to be rank {side.what}",
            "beyond": lambda side: f"rank {side.ranks[0]} said to be rank {side.what}",
        }.get(self.how)
        sides = join_words(map(each, self.sides)) if each else ""
        met = "each other" if len(self.stuck) == len(self.met) else "the others"
        peers, why = (
            "peers are" if self.missing > 1 else "a peer is",
            f"this run has {format_count(self.run_size, 'rank')}",
        )
        if world <= self.run_size:
            did = join_words(describe_activities(self.absent))
            why = f"{name_ranks(one.rank for one in self.absent)} did not come to it ({did})"
        ranks, stuck = format_count(world, "rank"), name_ranks(self.stuck)
        return {
            "unanswered": f"no store answered {name_ranks(self.silent)} at {self.address}{than}{error}",
            "sizes": f"{there}, but ranks do not agree how many they are: {sides}",
            "same_rank": f"{there}, but {sides}",
            "beyond": f"{there}, but {sides} of a world of {world}: there are ranks 0 to {world - 1}",
            "unconnected": f"{there} and all {ranks} came to it; {stuck} did not get connected to {met}",
            "missing": f"{there}, but {peers} missing: {name_ranks(self.met)} expected {ranks}, and {why}",
        }[self.how]


def find_world_faults(evidence: Evidence) -> list[Finding]:
    """What ranks did to worlds or groups that can have stopped a run which hung or failed."""
    return find_split_worlds(evidence) or find_group_faults(evidence)


Made = Mapping[int, Sequence[Mark]]
"""By rank: the `new_group` that it called in one world."""


def find_group_faults(evidence: Evidence) -> list[Finding]:
    """What ranks did to groups that can have stopped a run which hung or failed, the earliest first."""
    worlds = {rank: worlds_of(trace, evidence.trace.groups) for rank, trace in evidence.trace.ranks.items()}
    waits, turns = find_waits(evidence, until_failed=True), range(max(map(len, worlds.values()), default=0))
    made = [{rank: ours[turn].made for rank, ours in worlds.items() if len(ours) > turn} for turn in turns]
    findings = (_made_otherwise(one, evidence) or _not_made(one, evidence, waits) for one in made)
    return [*filter(None, findings)] or [*_destroyed(evidence, worlds, waits)]


# -- new_group


def _made_otherwise(made: Made, evidence: Evidence) -> Finding | None:
    """The first new_group that made another group on some rank, if a rank got no further with that group or a later."""
    for number in range(max(map(len, made.values()), default=0)):
        here = {rank: marks[number] for rank, marks in made.items() if len(marks) > number}
        if len({mark.members for mark in here.values()}) > 1:
            # or a collective never ended in a group that was made by this new_group or a later one
            unended = (step.group.name.partition("'")[0] for step in evidence.steps if step.state != "completed")
            stuck = any(name.isdecimal() and int(name) > number for name in unended)
            stuck = stuck or any(_stuck(rank, marks[number:], evidence) for rank, marks in made.items())
            return _difference(number, here, made) if stuck else None
    return None


def _stuck(rank: int, marks: Sequence[Mark], evidence: Evidence) -> bool:
    """Whether a rank never came out of one of these, or failed in the last of them."""
    calls, facts = evidence.calls(rank), evidence.ranks.get(rank)
    last = bool(marks) and (not calls or calls[-1].begin < marks[-1].begin)
    failed = last and facts is not None and facts.failed and evidence.trace.ranks[rank].marks[-1] is marks[-1]
    return failed or any(mark.end is None for mark in marks)


def _difference(number: int, here: Mapping[int, Mark], made: Made) -> Finding:
    common, odd = majority({rank: mark.members for rank, mark in here.items()})
    others = tuple(rank for rank in here if rank not in odd)
    slip: Literal["", "left_out", "added"] = ""
    if common is not None:
        rest, *tails = ([mark.members for mark in made[rank][number:]] for rank in (others[0], *odd))
        left_out, added = all(tail == rest[1:] for tail in tails), all(tail[1:] == rest for tail in tails)
        slip = "left_out" if left_out else "added" if added else ""
    return GroupsDiffer(
        number=number + 1,
        sides=_sides({rank: here[rank] for rank in odd} or here),
        common=_sides({others[0]: here[others[0]]})[0] if common is not None else None,
        slip=slip,
        ranks=odd,
        others=others,
        step=f"new_group #{number + 1}",
        lines=tuple(here[rank].source for rank in (*odd, *others)),
    )


def _sides(marks: Mapping[int, Mark]) -> tuple[f.Side, ...]:
    """What ranks made, and where."""
    made = {rank: (f"[{', '.join(map(str, mark.members))}]", mark.source) for rank, mark in marks.items()}
    sides = f.group_ranks(made)
    return tuple(f.Side(ranks=tuple(ranks), what=what, lines=(line,)) for (what, line), ranks in sides.items())


def _not_made(made: Made, evidence: Evidence, waits: Mapping[int, Wait]) -> Finding | None:
    """A new_group that ranks never came out of, because a member never came to it."""
    stuck = {one: of for one, of in made.items() if of and of[-1].end is None and evidence.ranks[one].alive}
    number = min(map(len, stuck.values()), default=0)
    ours = {rank: marks[-1] for rank, marks in stuck.items() if len(marks) == number}
    mark = next(iter(ours.values()), None)
    missing = tuple(rank for rank in mark.members if len(made.get(rank, ())) < number) if mark is not None else ()
    if mark is None or not missing:
        return None
    lines = unique_lines(one.source for one in ours.values())
    elsewhere = [evidence.place(evidence.ranks[rank]) for rank in missing if rank in evidence.ranks]
    return GroupNotMade(
        kind=FindingKind.GROUPS if all(rank in waits for rank in missing) else FindingKind.NEVER_ENTERED,
        members=tuple(mark.members),
        did=Waiting(evidence, waits).did(missing),
        at=lines,
        ranks=missing,
        others=tuple(ours),
        step=f"new_group #{number}",
        lines=(*(place.at for place in elsewhere if place is not None), *lines),
        seconds=_since(ours.values(), evidence),
    )


def _since(began: Iterable[Mark | Call], evidence: Evidence) -> float:
    """Seconds from the first of these until the run was over."""
    return round(max(0.0, evidence.over - min(one.begin for one in began)), 6)


# -- destroy_process_group


def _destroyed(evidence: Evidence, worlds: Mapping[int, list[World]], waits: Mapping[int, Wait]) -> Iterator[Finding]:
    """Steps that ranks waited or failed in, whose missing ranks had destroyed the group and lived on."""
    broken = [hit[1] for rank in evidence.ranks if (hit := evidence.broken(rank)) is not None and not hit[1].message]
    for step in {step.number: step for step in broken}.values():
        ends = ((rank, _end_of_group(rank, step.group, evidence)) for rank in step.missing)
        gone = {rank: end for rank, end in ends if end and _lived_on(evidence, rank, end, worlds[rank])}
        if gone:
            yield _left_group(step, gone, evidence, waits)


def _end_of_group(rank: int, group: Group, evidence: Evidence) -> Mark | None:
    """When a rank destroyed a group, or all groups and this one among them."""
    trace = evidence.trace.ranks.get(rank)
    begins = [call.begin for call in evidence.calls(rank) if call.group == group.name]
    for mark in trace.marks if trace is not None else ():
        used = any(begin < mark.begin for begin in begins) and is_end_of_world(mark, evidence.trace.groups)
        if mark.name == "destroy_process_group" and (mark.group == group.name or used):
            return mark
    return None


def _lived_on(evidence: Evidence, rank: int, end: Mark, worlds: Iterable[World]) -> bool:
    """Whether a rank began anew, or was there for long, after it had destroyed a group: else the others met its end."""
    facts = evidence.ranks[rank]
    ended = (facts.ended or 0.0) - evidence.trace.origin
    anew = any(world.begun.begin > end.begin for world in worlds)
    return anew or facts.alive or (facts.left and ended > end.begin + SEEN_LATER_S)


def _left_group(step: Step, gone: Mapping[int, Mark], evidence: Evidence, waits: Mapping[int, Wait]) -> Finding:
    entered, calls = tuple(sorted(step.calls)), step.calls.values()
    alone, failed = len(gone) > len(entered), any(call.error for call in calls)
    took, destroyed = _since(calls, evidence), [mark.source for mark in gone.values()]
    used = [step.calls[rank].source for rank in (entered if alone else step.calls)]
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
        ranks=entered if alone else tuple(gone),
        others=tuple(gone) if alone else entered,
        step=step.title,
        lines=(*used, *destroyed) if alone else (*destroyed, *used),
        seconds=None if failed else took,
    )


# -- ranks that did not find each other in init_process_group, by the stores that they looked for

_LOOPBACK = re.compile(r"localhost|127\.|::1$")
"""Addresses that each node has for itself."""
Lookups = Mapping[int, StoreLookup]
"""By rank: the store that it looked for in its last init_process_group."""


def explain_rendezvous(evidence: Evidence) -> list[Finding]:
    """What kept ranks in init_process_group, or failed them there; nothing where that is not on record."""
    lookups = {rank: of for rank in evidence.ranks if (of := _lookup(evidence, rank)) is not None}
    stuck = tuple(rank for rank in lookups if _is_stuck(evidence, rank))
    asked = {rank: of for rank, of in lookups.items() if rank in stuck or of.found}
    return _rendezvous(_unmet(asked, stuck, evidence), asked, evidence) if stuck else []


def _unmet(asked: Lookups, stuck: tuple[int, ...], evidence: Evidence) -> Rendezvous | None:
    silent, met = (tuple(rank for rank, of in asked.items() if of.found is found) for found in (False, True))
    addresses = {rank: f"{of.host}:{of.port}" for rank, of in asked.items()}
    if len(set(addresses.values())) > 1:
        sides, odd = sides_of({rank: f"at {address}" for rank, address in addresses.items()}), majority(addresses)[1]
        return Rendezvous(how="addresses", sides=sides, silent=silent if met else (), ranks=odd)
    # No store at the one address; unless rank 0 hosts one there, and only waits for the others.
    hosts = [rank for rank in silent if asked[rank].asked_rank == 0 and not _is_runs(asked[rank], evidence)]
    if silent and not (hosts and (met or len(silent) == 1)):
        why = next((of.error.partition("\n")[0] for of in asked.values() if of.error), "")
        return Rendezvous(how="unanswered", address=addresses[silent[0]], silent=silent, met=met, error=why)
    return _numbered(asked, stuck, evidence) if met else None  # rank 0 alone: whether it hosts a store is not known


def _rendezvous(facts: Rendezvous | None, asked: Lookups, evidence: Evidence) -> list[Finding]:
    if facts is None:
        return []
    others = tuple(rank for rank in asked if rank not in facts.ranks)
    places = {rank: place.at for rank in facts.ranks if (place := evidence.place(evidence.ranks[rank])) is not None}
    lines = tuple(asked[one].source if one in asked else places.get(one, "") for one in (*facts.ranks, *others))
    return [replace(facts, others=others, lines=lines)]


def find_split_worlds(evidence: Evidence) -> list[Finding]:
    """Ranks that met at one store and do not agree how many they are, or who: whatever they do then hangs or fails."""
    met: dict[str, dict[int, StoreLookup]] = {}
    for rank, facts in evidence.ranks.items():
        lookup = None if facts.left else _lookup(evidence, rank)
        if lookup is None or not lookup.found:
            continue
        worlds = worlds_of(evidence.trace.ranks[rank], evidence.trace.groups)
        if worlds and worlds[-1].destroyed is None:
            own = "" if _is_runs(lookup, evidence) or not _LOOPBACK.match(lookup.host) else facts.node
            met.setdefault(f"{lookup.host}:{lookup.port} {own}", {})[rank] = lookup
    return [one for asked in met.values() for one in _rendezvous(_disagreement(asked), asked, evidence)]


def _lookup(evidence: Evidence, rank: int) -> StoreLookup | None:
    trace = evidence.trace.ranks.get(rank)
    marks = [mark for mark in trace.marks if mark.name == "init_process_group"] if trace is not None else []
    stores = trace.stores if trace is not None else []
    return stores[-1] if marks and stores and stores[-1].begin >= marks[-1].begin else None


def _is_stuck(evidence: Evidence, rank: int) -> bool:
    """Whether a rank never got out of its last init_process_group, or failed there."""
    marks = [mark for mark in evidence.trace.ranks[rank].marks if mark.name == "init_process_group"]
    place = evidence.place(evidence.ranks[rank])
    raised = evidence.ranks[rank].failed and place is not None and place.call == "init_process_group"
    return marks[-1].end is None or raised


def _is_runs(lookup: StoreLookup, evidence: Evidence) -> bool:
    """Whether the lab itself has a store at that address."""
    plan = evidence.record.plan()
    return (lookup.host, lookup.port) == (plan.master_addr, plan.master_port)


def _numbered(asked: Lookups, stuck: tuple[int, ...], evidence: Evidence) -> Rendezvous:
    """The store is there: ranks that expect more of them than came, or that say they are the same one."""
    if (disagreement := _disagreement(asked)) is not None:
        return disagreement
    first = next(iter(asked.values()))
    world, came, run_size = first.world_size, {rank: of.asked_rank for rank, of in asked.items()}, len(evidence.ranks)
    address, met = f"{first.host}:{first.port}", tuple(came)
    facts = Rendezvous(how="unconnected", address=address, world_size=world, run_size=run_size, met=met, stuck=stuck)
    beyond = {rank: str(number) for rank, number in came.items() if number >= world}
    if beyond:
        sides = tuple(f.Side(ranks=(rank,), what=number) for rank, number in beyond.items())
        return replace(facts, how="beyond", sides=sides, ranks=tuple(beyond))
    if not (missing := len(set(range(world)) - set(came.values()))):
        return facts
    absent = () if world > run_size else tuple(rank for rank in evidence.ranks if rank not in asked)
    did = Waiting(evidence, {}).did(absent)
    return replace(facts, how="missing", missing=missing, absent=did, ranks=absent)


def _disagreement(asked: Lookups) -> Rendezvous | None:
    """Ranks that expect different numbers of them, or say that they are the same one."""
    first = next(iter(asked.values()))
    address = f"{first.host}:{first.port}"
    worlds = {rank: str(of.world_size) for rank, of in asked.items()}
    if len(set(worlds.values())) > 1:
        return Rendezvous(how="sizes", address=address, sides=sides_of(worlds), ranks=majority(worlds)[1])
    same = [one for one in sides_of({rank: str(of.asked_rank) for rank, of in asked.items()}) if len(one.ranks) > 1]
    return Rendezvous(how="same_rank", address=address, sides=tuple(same)) if same else None


# -- in words

_GROUP_RULE = "Every rank has to call new_group for every group, in the same order, whether it is a member or not."


def _made(side: f.Side) -> str:
    return f"made {side.what}{at(side.lines[:1])}"
