"""Who waits for whom when a run does not go on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lab.diagnosis.errors import lost_a_peer
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import RankFacts
from lab.diagnosis.finding import CallFacts, majority
from lab.diagnosis.stacks import is_communicating
from lab.trace.model import Call
from lab.trace.steps import Step

_WAITS = re.compile(r"\b(?:wait|backward|synchronize|result|value)\(")


@dataclass(frozen=True, slots=True)
class Wait:
    """A rank that was in a call when the run was over."""

    rank: int
    call: Call
    step: Step
    on: tuple[int, ...]
    """Ranks without which the call could not end."""

    @property
    def facts(self) -> CallFacts:
        """The call as a finding tells it."""
        return call_facts(self.call, self.step)


def find_waits(evidence: Evidence, *, until_failed: bool = False) -> dict[int, Wait]:
    """By rank: what every rank alive at the end waited in; if asked, also where ranks lost a peer or gave up."""
    waits = {}
    for rank, facts in evidence.ranks.items():
        call = _blocked_in(evidence, facts) or (_failed_in(evidence, facts) if until_failed else None)
        step = evidence.step(call) if call is not None else None
        if call is not None and step is not None:
            waits[rank] = Wait(rank, call, step, step.lacks(call))
    return waits


def _blocked_in(evidence: Evidence, rank: RankFacts) -> Call | None:
    """The call that a rank did not come out of.

    One that the script asked a handle for holds the rank up only where the rank stood at a line that waits.
    """
    if not rank.alive:
        return None
    unfinished = [call for call in evidence.calls(rank.rank) if call.state == "unfinished"]
    blocking = [call for call in unfinished if not call.hands_out]
    if blocking:
        return blocking[-1]
    if not unfinished or (rank.stack and not _waits_at_line(evidence, rank)):
        return None
    return next((call for call in unfinished if (step := evidence.step(call)) and step.missing), unfinished[0])


def _failed_in(evidence: Evidence, rank: RankFacts) -> Call | None:
    """The call in which a rank lost a peer, or waited until it gave up."""
    if not rank.failed or not lost_a_peer(rank):
        return None
    broken = evidence.broken(rank.rank)
    return next((call for call in evidence.calls(rank.rank) if call.error), broken[0] if broken is not None else None)


def _waits_at_line(evidence: Evidence, rank: RankFacts) -> bool:
    """Whether a rank stood where it waits for calls that it issued before."""
    place = evidence.stood(rank)
    at_line = place is not None and bool(place.call or _WAITS.search(place.source))
    return at_line or is_communicating(rank.stack)


def find_cycle(waits: dict[int, Wait]) -> tuple[int, ...]:
    """Ranks of which each waits for the next and the last for the first; empty where there is no such ring."""
    done: set[int] = set()
    for first in sorted(waits):
        path: list[int] = []
        turns = [iter((first,))]
        while turns:
            rank = next(turns[-1], None)
            if rank is None:
                turns.pop()
                done.update(path[-1:])
                del path[-1:]
            elif rank in path:
                return tuple(path[path.index(rank) :])
            elif rank in waits and rank not in done:
                path.append(rank)
                turns.append(iter(waits[rank].on))
    return ()


def missed_steps(waits: dict[int, Wait]) -> list[tuple[Step, tuple[int, ...], tuple[int, ...]]]:
    """Every step that ranks waited in for others: the step, who waited, who was waited for.

    Those come first none of whose missing ranks waits itself: they are where it began.
    """
    by_step: dict[int, list[Wait]] = {}
    for wait in waits.values():
        if wait.on:
            by_step.setdefault(wait.step.number, []).append(wait)
    found = []
    for ours in by_step.values():
        missing = tuple(sorted({rank for wait in ours for rank in wait.on}))
        found.append((ours[0].step, tuple(sorted(wait.rank for wait in ours)), missing))
    return sorted(found, key=lambda item: (any(rank in waits for rank in item[2]), -len(item[1]), item[0].number))


def majority_step(waits: dict[int, Wait]) -> int | None:
    """Number of the step in which more than half of the waiting ranks were; None where there is none."""
    return majority({rank: wait.step.number for rank, wait in waits.items()})[0]


def call_facts(call: Call, step: Step, group: str = "") -> CallFacts:
    """A call as a finding tells it: `recv from rank 1 with tag 3`, `all_reduce #2`."""
    operation = call.operation
    if operation.sends or operation.receives:
        direction: Literal["to", "from"] = "to" if operation.sends else "from"
        return CallFacts(
            rank=call.rank,
            name=call.op,
            source=call.source,
            direction=direction,
            peer=call.peer,
            tag=call.tag or 0,
            group=group,
        )
    name = step.title if call.op == step.op else f"{call.op} #{call.seq}"
    return CallFacts(rank=call.rank, name=name, source=call.source, group=group)


def waited_s(evidence: Evidence, waits: Sequence[Wait]) -> float | None:
    """How long the first of these ranks had been waiting, for a finding; None where no clock tells."""
    return round(waited(evidence, waits), 6) if waits and not evidence.dumped else None


def waited(evidence: Evidence, waits: Sequence[Wait]) -> float:
    """Seconds that the first of these ranks had been waiting when the run was over, or when it failed."""
    ends = [evidence.over if wait.call.end is None else wait.call.end for wait in waits]
    return max((max(0.0, end - wait.call.begin) for end, wait in zip(ends, waits, strict=True)), default=0.0)
