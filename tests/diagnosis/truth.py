"""What is right to say of a mutant: one table. A careful person, who has only the evidence of the run, says no more.

A mutant that leaves a call out shifts all later calls of its rank. The evidence may show the call itself, or only the
first later call that does not fit the others. Both lines are right, and the lines between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile
from typing import Literal, NamedTuple

from lab.features.mutants.candidates import Candidates, Event
from lab.features.mutants.on_node.mutant import Mutant
from lab.frozen import Frozen

Symptom = Literal["shifted", "mismatch", "wrong", "ended", "hang", "slow", "rendezvous"]
"""What becomes of the run: later calls do not fit; the call itself does not fit; results are wrong; the rank ends;
it stays where it is; it is late; ranks do not meet."""


class Right(NamedTuple):
    """What is right to say of a kind of mutants."""

    symptom: Symptom
    kinds: str
    """Kinds of the first finding."""
    silent: bool = False
    """Whether a run that passes without a finding is right, too: the evidence may show nothing."""


_SHIFTED = (
    "mismatch slipped left_early went_alone elsewhere deadlock never_entered unmatched shape dtype root reduce_op "
    "splits counts groups luck"
)
RIGHT: dict[str, Right] = {
    "skip": Right("shifted", f"{_SHIFTED} failed diverged"),
    "repeat": Right("shifted", f"{_SHIFTED} failed"),
    "swap": Right("shifted", f"{_SHIFTED} failed"),
    "op": Right("shifted", f"{_SHIFTED} failed"),
    "group": Right("shifted", f"{_SHIFTED} failed"),
    "peer": Right("shifted", "unmatched deadlock elsewhere left_early slipped never_entered failed"),
    "tag": Right("shifted", "unmatched deadlock elsewhere left_early slipped never_entered failed"),
    "reduction": Right("mismatch", "reduce_op"),
    "root": Right("mismatch", "root failed elsewhere"),
    "shape": Right("mismatch", "shape splits failed"),
    "dtype": Right("mismatch", "dtype shape failed"),
    "split": Right("mismatch", "splits shape failed"),
    "nan": Right("wrong", "nonfinite failed"),
    "change": Right("wrong", "changed_before_wait wrong_result", silent=True),
    "unwaited": Right("wrong", "changed_before_wait wrong_result unwaited", silent=True),
    "lr": Right("wrong", "diverged", silent=True),
    "no_sync": Right("shifted", f"{_SHIFTED} failed diverged"),
    "drop": Right("shifted", f"{_SHIFTED} diverged", silent=True),
    "data": Right("wrong", "same_values", silent=True),
    "raise": Right("ended", "failed"),
    "exit": Right("ended", "failed left_early"),
    "abort": Right("ended", "failed"),
    "segfault": Right("ended", "failed"),
    "hang": Right("hang", "never_entered own_code waiting late"),
    "hang_gil": Right("hang", "never_entered own_code waiting late"),
    "sleep": Right("slow", "straggler late", silent=True),
    "world": Right("rendezvous", "rendezvous failed"),
    "address": Right("rendezvous", "rendezvous failed never_entered late"),
}


class Truth(Frozen):
    """The truth of one mutant of a run."""

    mutant: Mutant
    at: str
    """The line of the changed call or phase."""
    symptom: Symptom
    kinds: frozenset[str]
    culprits: tuple[frozenset[int], ...]
    """Each is a right answer; an empty one stands for nobody."""
    lines: frozenset[str]
    """Each is right to be named first."""
    innocent: frozenset[int]
    silent: bool
    """Whether it is right to find nothing."""


def find_truth(mutant: Mutant, event: Event, candidates: Candidates) -> Truth:
    """Return what is right to say of a mutant that changes an event."""
    right, ranks = RIGHT[mutant.kind], frozenset(candidates.by_rank)
    changed = frozenset(mutant.ranks) or ranks
    lines = {event.at}
    if right.symptom == "shifted":
        lines |= {*_shifted_lines(_reduced_for(event, candidates) if mutant.kind == "no_sync" else event, candidates)}
    if mutant.kind == "exit":
        lines |= {*_line_before(event, candidates)}
    ours = candidates.by_rank[event.rank]
    if mutant.kind in ("repeat", "swap"):  # it makes the next call, of whatever group, too late or too early
        lines |= {*[one.at for one in ours[ours.index(event) + 1 :] if one.is_call][:1]}
    is_alone = any(one.facts.get("size") == 1 for one in ours)  # then each replica may train apart
    has_replicas = any(one.target == "forward" for one in ours) and not is_alone
    sizes = [event.facts.get("size", 3), *(one.facts["size"] for one in ours if mutant.to == one.facts.get("g"))]
    symmetric = event.is_message or min(sizes) < 3 or (not event.is_call and len(ranks) < 3)
    nobody = right.symptom in ("shifted", "mismatch", "wrong", "rendezvous") and symmetric
    if nobody or len(changed) > 1:
        lines |= {one.at for other in ranks - changed for one in candidates.by_rank[other] if _meets(one, event)}
    return Truth(
        mutant=mutant,
        at=event.at,
        symptom=right.symptom,
        kinds=frozenset(right.kinds.split()),
        culprits=(changed, *([frozenset[int]()] if nobody or len(changed) > 1 else [])),
        lines=frozenset(lines),
        innocent=ranks - changed,
        silent=right.silent
        or (mutant.target == "step" and mutant.kind == "skip" and (not has_replicas or _steps_alone(event, candidates)))
        or _is_unseen(mutant, event, candidates),
    )


def _is_unseen(mutant: Mutant, event: Event, candidates: Candidates) -> bool:
    """Return whether no other rank can notice it.

    The group has one member, the receiver accepts a message of any rank, the rank ends after its last call, the call
    only moves a NaN, which may be data, or the backward pass reduces no gradient that could be left out.
    """
    if mutant.kind == "no_sync":
        return _reduced_for(event, candidates) is event
    if mutant.kind == "nan" and not event.target.startswith(("all_reduce", "reduce")):
        return True
    if mutant.kind == "exit":
        ours = candidates.by_rank[event.rank]
        return mutant.to == "0" and not any(one.is_call for one in ours[ours.index(event) :])
    peers = candidates.by_rank.get(event.facts.get("peer", -1), ()) if event.target == "send" else ()
    is_from_any = any(one.target == "recv" and one.facts.get("peer") == -1 for one in peers)
    return is_from_any or (event.facts.get("size") == 1 and RIGHT[mutant.kind].symptom in ("shifted", "mismatch"))


def _reduced_for(event: Event, candidates: Candidates) -> Event:
    """Return the first reduction of gradients after a forward pass, which is left out without it; itself if none is."""
    following = _until_next(event, candidates.by_rank[event.rank])
    return next((one for one in following if one.is_call and one.via.endswith("backward")), event)


def _until_next(event: Event, ours: Sequence[Event]) -> list[Event]:
    """Return what a rank did between an event and the next one of its name."""
    return [*takewhile(lambda one: one.target != event.target, ours[ours.index(event) + 1 :])]


def _steps_alone(event: Event, candidates: Candidates) -> bool:
    """Return whether a step concerns no replicas: the rank exchanged nothing since the step before, or the optimizer
    itself sends the parameters round.
    """
    ours = candidates.by_rank[event.rank]
    before = _until_next(event, ours[ours.index(event) :: -1])
    sends = any(one.is_call and one.at == event.at for one in ours)
    return sends or not any(one.is_call for one in before)


def _shifted_lines(event: Event, candidates: Candidates) -> Iterator[str]:
    """Yield the lines of the later calls that fit the shifted calls of others, and of the first one that does not."""
    calls = candidates.by_rank[event.rank]
    later = [one for one in calls[calls.index(event) :] if one.is_call]
    if not event.is_message:
        later = [one for one in later if not one.is_message and one.facts["g"] == event.facts.get("g", one.facts["g"])]
    for one, other in pairwise(later):
        yield one.at
        if one.signature != other.signature:
            yield other.at
            return
    yield from (one.at for one in later[-1:])
    yield from _line_before(event, candidates)  # with the last call left out, this is the last one of the rank


def _line_before(event: Event, candidates: Candidates) -> Iterator[str]:
    """Yield the line of the last call before an event."""
    calls = candidates.by_rank[event.rank]
    yield from [one.at for one in calls[: calls.index(event)] if one.is_call][-1:]


def _meets(one: Event, event: Event) -> bool:
    """Return whether another rank's call can belong to the same step as an event."""
    if event.is_message:
        return one.is_message and event.rank == one.facts.get("peer")
    return not event.is_call or one.target == event.target
