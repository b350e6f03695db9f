"""Groups that ranks made otherwise than others did, or destroyed while others still used them.

Every rank has to make every group, in the same order, whether it is a member or not: PyTorch finds the members of a
group by the number of its `new_group`. A script may break that unharmed; it is told where a run stopped over a group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from lab.diagnosis.ends import activities_of, lines_of
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import SEEN_LATER_S
from lab.diagnosis.finding import Finding, FindingKind, GroupDestroyed, GroupNotMade, GroupsDiffer, Side, majority
from lab.diagnosis.waits import Wait, find_waits
from lab.trace.model import Group, Mark, World, is_end_of_world, worlds_of
from lab.trace.steps import Step


def find_group_faults(evidence: Evidence) -> list[Finding]:
    """What ranks did to groups that can have stopped a run which hung or failed, the earliest first."""
    ranks = evidence.trace.ranks
    worlds = {rank: worlds_of(trace, evidence.trace.groups) for rank, trace in ranks.items()}
    waits = find_waits(evidence, until_failed=True)
    found = []
    for turn in range(max(map(len, worlds.values()), default=0)):
        made = {rank: ours[turn].made for rank, ours in worlds.items() if len(ours) > turn}
        finding = _made_otherwise(made, evidence) or _not_made(made, evidence, waits)
        found += [finding] if finding is not None else []
    return found or [*_destroyed(evidence, worlds, waits)]


# -- new_group


def _made_otherwise(made: Mapping[int, Sequence[Mark]], evidence: Evidence) -> Finding | None:
    """The first new_group that made another group on some rank, if a rank got no further with that group or a later."""
    for number in range(max(map(len, made.values()), default=0)):
        here = {rank: marks[number] for rank, marks in made.items() if len(marks) > number}
        if len({mark.members for mark in here.values()}) > 1:
            stuck = any(_stuck(rank, marks[number:], evidence) for rank, marks in made.items())
            return _difference(number, here, made) if stuck or _used(number, evidence) else None
    return None


def _stuck(rank: int, marks: Sequence[Mark], evidence: Evidence) -> bool:
    """Whether a rank never came out of one of these, or failed in the last of them."""
    if any(mark.end is None for mark in marks):
        return True
    calls, facts = evidence.calls(rank), evidence.ranks.get(rank)
    last = bool(marks) and (not calls or calls[-1].begin < marks[-1].begin)
    return last and facts is not None and facts.failed and evidence.trace.ranks[rank].marks[-1] is marks[-1]


def _used(number: int, evidence: Evidence) -> bool:
    """Whether a collective never ended in a group that was made by this new_group or a later one."""
    for step in evidence.steps:
        plain = step.group.name.partition("'")[0]
        if step.state != "completed" and plain.isdecimal() and int(plain) > number:
            return True
    return False


def _difference(number: int, here: Mapping[int, Mark], made: Mapping[int, Sequence[Mark]]) -> Finding:
    common, odd = majority({rank: mark.members for rank, mark in here.items()})
    slip: Literal["", "left_out", "added"] = ""
    others = tuple(rank for rank in here if rank not in odd)
    lines = tuple(here[rank].source for rank in (*odd, *others))
    if common is None:
        sides, theirs, odd = _sides(here, here), None, ()
    else:
        tails = [_members(made[rank][number:]) for rank in odd]
        rest = _members(made[others[0]][number:])
        left_out, besides = all(tail == rest[1:] for tail in tails), all(tail[1:] == rest for tail in tails)
        slip = "left_out" if left_out else "added" if besides else ""
        sides, theirs = _sides(odd, here), _sides(others[:1], here)[0]
    facts = GroupsDiffer(
        number=number + 1,
        sides=sides,
        common=theirs,
        slip=slip,
        ranks=odd,
        others=others,
        step=f"new_group #{number + 1}",
        lines=lines,
    )
    return Finding(kind=FindingKind.GROUPS, facts=facts)


def _sides(ranks: Iterable[int], here: Mapping[int, Mark]) -> tuple[Side, ...]:
    """What ranks made, and where."""
    made: dict[tuple[tuple[int, ...], str], list[int]] = {}
    for rank in ranks:
        made.setdefault((here[rank].members, here[rank].source), []).append(rank)
    return tuple(
        Side(ranks=tuple(ours), what=f"[{', '.join(map(str, members))}]", lines=(source,))
        for (members, source), ours in made.items()
    )


def _members(marks: Sequence[Mark]) -> list[tuple[int, ...]]:
    return [mark.members for mark in marks]


def _not_made(made: Mapping[int, Sequence[Mark]], evidence: Evidence, waits: Mapping[int, Wait]) -> Finding | None:
    """A new_group that ranks never came out of, because a member never came to it."""
    stuck = {rank: (len(marks), marks[-1]) for rank, marks in made.items() if marks and marks[-1].end is None}
    stuck = {rank: one for rank, one in stuck.items() if evidence.ranks[rank].alive}
    if not stuck:
        return None
    number, mark = min(stuck.values(), key=lambda one: one[0])
    ours = [rank for rank, (count, _) in stuck.items() if count == number]
    missing = [rank for rank in mark.members if len(made.get(rank, ())) < number]
    if not missing:
        return None
    lines = tuple(stuck[rank][1].source for rank in ours)
    took = max(0.0, evidence.over - min(stuck[rank][1].begin for rank in ours))
    elsewhere = [evidence.place(evidence.ranks[rank]) for rank in missing if rank in evidence.ranks]
    facts = GroupNotMade(
        members=tuple(mark.members),
        did=activities_of(evidence, missing, waits),
        at=tuple(dict.fromkeys(lines)),
        ranks=tuple(missing),
        others=tuple(ours),
        step=f"new_group #{number}",
        lines=(*(place.at for place in elsewhere if place is not None), *lines),
        seconds=round(took, 6),
    )
    kind = FindingKind.GROUPS if all(rank in waits for rank in missing) else FindingKind.NEVER_ENTERED
    return Finding(kind=kind, facts=facts)


# -- destroy_process_group


def _destroyed(evidence: Evidence, worlds: Mapping[int, list[World]], waits: Mapping[int, Wait]) -> Iterator[Finding]:
    """Steps that ranks waited or failed in, whose missing ranks had destroyed the group and lived on."""
    told = set()
    for rank in evidence.ranks:
        hit = evidence.broken(rank)
        if hit is None or hit[1].number in told or hit[1].message:
            continue
        step = hit[1]
        told.add(step.number)
        ends = {one: _end_of_group(one, step.group, evidence) for one in step.missing}
        gone = {
            one: mark
            for one, mark in ends.items()
            if mark is not None and (_lived_on(evidence, one, mark) or _began_again(mark, worlds[one]))
        }
        if gone:
            yield _left_group(step, gone, evidence, waits)


def _end_of_group(rank: int, group: Group, evidence: Evidence) -> Mark | None:
    """When a rank destroyed a group, or all groups and this one among them."""
    trace = evidence.trace.ranks.get(rank)
    for mark in trace.marks if trace is not None else ():
        used = any(call.group == group.name and call.begin < mark.begin for call in evidence.calls(rank))
        if mark.name == "destroy_process_group" and (
            mark.group == group.name or (used and is_end_of_world(mark, evidence.trace.groups))
        ):
            return mark
    return None


def _lived_on(evidence: Evidence, rank: int, end: Mark) -> bool:
    """Whether a rank was there for long after it had destroyed a group; else it is its end that the others met."""
    facts = evidence.ranks[rank]
    ended = (facts.ended or 0.0) - evidence.trace.origin
    return facts.alive or (facts.left and ended > end.begin + SEEN_LATER_S)


def _began_again(end: Mark, worlds: Sequence[World]) -> bool:
    return any(world.begun.begin > end.begin for world in worlds)


def _left_group(step: Step, gone: Mapping[int, Mark], evidence: Evidence, waits: Mapping[int, Wait]) -> Finding:
    entered, calls = tuple(sorted(step.calls)), step.calls.values()
    alone, failed = len(gone) > len(entered), any(call.error for call in calls)
    took = round(max(0.0, evidence.over - min(call.begin for call in calls)), 6)
    destroyed, used = [mark.source for mark in gone.values()], [call.source for call in calls]
    facts = GroupDestroyed(
        gone=tuple(gone),
        entered=entered,
        alone=alone,
        group="" if step.group.plain_label == "default" else step.group.title,
        destroyed_at=tuple(destroyed),
        used_at=lines_of(calls),
        failed=failed,
        waited_s=took,
        did=activities_of(evidence, gone, waits),
        ranks=entered if alone else tuple(gone),
        others=tuple(gone) if alone else entered,
        step=step.title,
        lines=(*(calls_of.source for calls_of in map(step.calls.__getitem__, entered)), *destroyed)
        if alone
        else (*destroyed, *used),
        seconds=None if failed else took,
    )
    return Finding(kind=FindingKind.WENT_ALONE if alone else FindingKind.GROUPS, facts=facts)
