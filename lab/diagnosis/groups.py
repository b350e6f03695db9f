"""Groups that ranks made otherwise than others did, or destroyed while others still used them.

Every rank has to make every group, in the same order, whether it is a member or not: PyTorch finds the members of a
group by the number of its `new_group`. A script may break that unharmed; it is told where a run stopped over a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lab.diagnosis.ends import together, what_it_did
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import SEEN_LATER_S
from lab.diagnosis.finding import Finding, majority
from lab.diagnosis.waits import Wait, find_waits
from lab.trace.groups import World, is_end_of_world, worlds_of
from lab.trace.model import Group, Mark
from lab.trace.steps import Step
from lab.words import capital, format_duration, listing, name_ranks, ordinal

_RULE = "Every rank has to call new_group for every group, in the same order, whether it is a member or not."


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
    turn, step = ordinal(number + 1), f"new_group #{number + 1}"
    common, odd = majority({rank: mark.members for rank, mark in here.items()})
    others = [rank for rank in here if rank not in odd]
    lines = tuple(here[rank].source for rank in (*odd, *others))
    if common is None:
        sides = together(here, lambda rank: _made(here[rank]))
        sentence = f"The {turn} new_group of ranks was not for the same group: {'; '.join(sides)}. {_RULE}"
        return Finding(kind="groups", sentence=sentence, others=tuple(here), step=step, lines=lines)
    theirs = here[others[0]]
    tails = [_members(made[rank][number:]) for rank in odd]
    rest = _members(made[others[0]][number:])
    left_out, besides = all(tail == rest[1:] for tail in tails), all(tail[1:] == rest for tail in tails)
    mine = listing(together(odd, lambda rank: _made(here[rank])))
    sentence = (
        f"{mine} as {'its' if len(odd) == 1 else 'their'} {turn} group, where {name_ranks(others)} {_made(theirs)}"
    )
    sentence += f": {name_ranks(odd)} left that one out" if left_out else ", a group more" if besides else ""
    return Finding(
        kind="groups", sentence=f"{sentence}. {_RULE}", ranks=odd, others=tuple(others), step=step, lines=lines
    )


def _made(mark: Mark) -> str:
    return f"made [{', '.join(map(str, mark.members))}]{f' at {mark.source}' if mark.source else ''}"


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
    did = listing(together(missing, lambda rank: what_it_did(evidence, rank, waits)))
    sentence = (
        f"{name_ranks(missing)} never called new_group for [{', '.join(map(str, mark.members))}]. "
        f"{capital(name_ranks(ours))} waited there {format_duration(took)}, at {listing(lines)}; {did}."
    )
    elsewhere = [evidence.place(evidence.ranks[rank]) for rank in missing if rank in evidence.ranks]
    return Finding(
        kind="groups" if all(rank in waits for rank in missing) else "never_entered",
        sentence=sentence,
        ranks=tuple(missing),
        others=tuple(ours),
        step=f"new_group #{number}",
        lines=(*(place.at for place in elsewhere if place is not None), *lines),
        seconds=round(took, 6),
    )


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
    entered = sorted(step.calls)
    alone = len(gone) > len(entered)
    who, whom = name_ranks(gone), name_ranks(entered)
    at = listing(mark.source for mark in gone.values())
    lines = listing(call.source for call in step.calls.values())
    took = max(0.0, evidence.over - min(call.begin for call in step.calls.values()))
    lost = [call for call in step.calls.values() if call.error]
    verb = "failed" if lost else f"waited {format_duration(took)}"
    group = "the default group" if step.group.plain_label == "default" else f"group {step.group.title}"
    did = listing(together(gone, lambda rank: what_it_did(evidence, rank, waits)))
    if alone:
        sentence = f"{whom} went on alone: {'it' if len(entered) == 1 else 'they'} called {step.title} at {lines}, "
        sentence += f"when {who} had destroyed {group} at {at}."
    else:
        sentence = (
            f"{who} destroyed {group} at {at}, where {whom} still used it and {verb} in {step.title} at {lines}; "
        )
        sentence += f"{did}."
    named, others = (entered, gone) if alone else (gone, entered)
    first = [step.calls[rank].source for rank in entered] if alone else [mark.source for mark in gone.values()]
    rest = [mark.source for mark in gone.values()] if alone else [call.source for call in step.calls.values()]
    return Finding(
        kind="went_alone" if alone else "groups",
        sentence=sentence,
        ranks=tuple(named),
        others=tuple(others),
        step=step.title,
        lines=(*first, *rest),
        seconds=None if lost else round(took, 6),
    )
