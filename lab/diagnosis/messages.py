"""Messages that cannot come: sends that nobody receives, receives that nobody sends to, and whose fault that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from lab.diagnosis.ends import activities_of
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import CallFacts, Finding, FindingKind, Strayed, UnmatchedMessage, majority
from lab.diagnosis.rhythm import due, skipped
from lab.diagnosis.waits import Wait, call_facts, majority_step, waited_s
from lab.trace.model import Call
from lab.trace.steps import Step

_FEWEST = 3
"""Ranks of which most can do alike."""
How = Literal["neighbour", "no_such_rank", "passing_by", "other_peers", "nobody_there"]


def find_unmatched(evidence: Evidence, waits: Mapping[int, Wait]) -> list[Finding]:
    """Messages that ranks waited in, and that cannot come even if every other rank goes on as it can.

    A message whose other end may still come, because that rank is in its own code or waits for such a one, is none; nor
    is one in a ring of messages only, of which each may come when another one does.
    """
    pending = {rank: wait for rank, wait in sorted(waits.items()) if wait.step.message and wait.on}
    for wait in pending.values():
        unlike = _neighbour(evidence, wait)
        if unlike is not None:
            return [unlike]
    found, told = [], set[int]()
    for rank, wait in pending.items():
        peer = wait.on[0] if len(wait.on) == 1 else None
        other = pending.get(peer) if peer is not None else None
        if rank in told or (other is not None and other.rank in told):
            continue
        if peer is not None and peer not in evidence.ranks:
            found.append(_finding("no_such_rank", (wait.rank,), (wait,), evidence, last_rank=max(evidence.ranks)))
            told.add(rank)
        elif other is not None and other.on == (rank,) and other.call.operation.sends != wait.call.operation.sends:
            send, receive = (wait, other) if wait.call.operation.sends else (other, wait)
            found.append(_passing_by(send, receive, evidence))
            told |= {rank, other.rank}
        elif _in_mixed_ring(rank, waits):
            if other is not None and _in_mixed_ring(other.rank, waits):
                found.append(_other_peers(wait, other, evidence, waits))
                told |= {rank, other.rank}
            elif (left := _left_waiting(wait, pending)) is not None and left.rank not in told:
                found.append(_other_peers(left, wait, evidence, waits))
                told |= {rank, left.rank}
            else:
                found.append(_nobody_there(wait, evidence, waits))
                told.add(rank)
    return found


def _in_mixed_ring(rank: int, waits: Mapping[int, Wait]) -> bool:
    """Whether a rank waits for itself in the end, and not by messages alone."""
    seen: dict[int, bool] = {}
    todo = [(one, False) for one in waits[rank].on]
    while todo:
        one, mixed = todo.pop()
        if one == rank and mixed:
            return True
        if one in waits and one != rank and not (one in seen and seen[one] >= mixed):
            seen[one] = mixed
            todo += [(after, mixed or not waits[one].step.message) for after in waits[one].on]
    return False


def _left_waiting(wait: Wait, pending: Mapping[int, Wait]) -> Wait | None:
    """Who waits to receive from a rank that sends to another, or to send to one that receives from another."""
    sends = wait.call.operation.sends
    others = (other for other in pending.values() if other.on == (wait.rank,))
    return next((other for other in others if other.call.operation.sends != sends), None)


def _passing_by(send: Wait, receive: Wait, evidence: Evidence) -> Finding:
    """Two ranks that send to and receive from each other, and do not mean the same message."""
    differ = send.call.group != receive.call.group
    calls = [call_facts(one.call, one.step, one.step.group.title if differ else "") for one in (send, receive)]
    ours = (send, receive)
    return _finding("passing_by", (), ours, evidence, waits=tuple(calls), waited_s=waited_s(evidence, ours))


def _other_peers(wait: Wait, other: Wait, evidence: Evidence, waits: Mapping[int, Wait]) -> Finding:
    """A rank that waits for another's message, or for it to take one, while that one waits for somebody else."""
    did = activities_of(evidence, (rank for rank in other.on if rank != wait.rank), waits)
    ours = (wait, other)
    return _finding("other_peers", (), ours, evidence, did=did, waited_s=waited_s(evidence, ours))


def _nobody_there(wait: Wait, evidence: Evidence, waits: Mapping[int, Wait]) -> Finding:
    """A message whose other end waits in something else."""
    before = sum(step.state == "completed" and _same_ends(step, wait.step) for step in evidence.steps)
    most = majority_step(dict(waits))
    alone = most is not None and most != wait.step.number
    as_before = before and wait.call.operation.receives  # then who lacks a message may well be right
    named: tuple[int, ...] = (wait.rank,) if alone and not as_before else ()
    ours = (wait, *(waits[rank] for rank in wait.on if rank in waits))
    left, is_next = _left_out(evidence, wait)
    facts: dict[str, Any] = {"did": activities_of(evidence, wait.on, waits), "before": before}
    if left is not None:
        return _finding("nobody_there", wait.on, ours, evidence, left.source, left_out=left, left_next=is_next, **facts)
    return _finding("nobody_there", named, ours, evidence, **facts)


def _same_ends(message: Step, waited: Step) -> bool:
    """Whether a message went between the ends of one that was waited for, of which one may be any rank."""
    ends = zip((waited.source, waited.destination), (message.source, message.destination), strict=True)
    return message.message and all(wanted in (None, end) for wanted, end in ends)


def _finding(
    how: How, ranks: tuple[int, ...], ours: tuple[Wait, ...], evidence: Evidence, first_line: str = "", **more: Any
) -> Finding:
    told: dict[str, Any] = {
        "waits": tuple(wait.facts for wait in ours),
        "waited_s": waited_s(evidence, ours[:1]),
        "ranks": ranks,
        "others": tuple(wait.rank for wait in ours if wait.rank not in ranks),
        "step": ours[0].step.title,
        "lines": (first_line, *(wait.call.source for wait in ours)),
        "seconds": waited_s(evidence, ours[:2]),
    }
    return Finding(kind=FindingKind.UNMATCHED, facts=UnmatchedMessage(how=how, **{**told, **more}))


# -- whose fault it is


def left_by(evidence: Evidence, rank: int) -> int | None:
    """The other end of the message that a rank failed in, if it had ended before that one was over.

    Where it had not even begun, it is only where it called less than most ranks did, and the one that failed as often
    as they: else that one may have called once too often.
    """
    hit = evidence.broken(rank) if evidence.at_hand else None
    if hit is None or not hit[1].message:
        return None
    step = hit[1]
    ends = [one for one in (step.source, step.destination) if one is not None and one != rank]
    if len(ends) != 1 or ends[0] not in evidence.ranks or not evidence.ranks[ends[0]].left:
        return None
    calls = {one: len(evidence.calls(one)) for one in evidence.ranks}
    usual, _ = majority(calls)
    began = ends[0] in step.calls
    return ends[0] if began or (usual is not None and calls[ends[0]] < usual == calls[rank]) else None


def _left_out(evidence: Evidence, wait: Wait) -> tuple[CallFacts | None, bool]:
    """The call that the other end of a message left out, and whether its own loop would have come to it next.

    Or else it had been about to when it went on with what comes after it there. None where it left nothing out.
    """
    calls = evidence.calls(wait.on[0]) if len(wait.on) == 1 else []
    if calls and calls[-1].state == "unfinished":
        calls = calls[:-1]  # what it did instead
    beats = [(call.op, call.source) for call in calls]
    before = due(beats)
    if before is not None and _answers(calls[before], wait):
        return call_facts(calls[before], wait.step), True
    once = [call for call in map(calls.__getitem__, skipped(beats)) if _answers(call, wait)]
    return (call_facts(once[0], wait.step), False) if len(once) == 1 else (None, False)


def _answers(call: Call, wait: Wait) -> bool:
    """Whether a call is of the other end of what a rank waits in."""
    return call.peer == wait.rank and call.operation.sends == wait.call.operation.receives


def _neighbour(evidence: Evidence, wait: Wait) -> Finding | None:
    """A rank that has another neighbour than the others at the same line.

    With three or more ranks: most address the rank at the same distance from their own, and this one does not.
    """
    size, turn = len(wait.step.group.ranks), _turn(evidence, wait.rank, wait.call)
    if turn is None or size < _FEWEST:
        return None
    there = [(rank, _nth(evidence, rank, wait.call, turn)) for rank in wait.step.group.ranks]
    meant = {rank: (call.peer - rank) % size for rank, call in there if call is not None and call.peer is not None}
    usual, odd = majority(meant)
    if usual is None or odd != (wait.rank,) or len(meant) != size:
        return None
    alike = tuple(rank for rank in meant if rank != wait.rank)
    facts: dict[str, Any] = {"usual_distance": usual, "group_size": size, "alike": alike}
    return _finding("neighbour", (wait.rank,), (wait,), evidence, **facts)


def _turn(evidence: Evidence, rank: int, call: Call) -> int | None:
    alike = _at_line(evidence, rank, call)
    return alike.index(call) if call in alike else None


def _nth(evidence: Evidence, rank: int, like: Call, turn: int) -> Call | None:
    alike = _at_line(evidence, rank, like)
    return alike[turn] if turn < len(alike) else None


def _at_line(evidence: Evidence, rank: int, like: Call) -> list[Call]:
    """The calls of a rank that are of the same kind, at the same line and in the same group."""
    wanted = (like.op, like.source, like.group)
    return [call for call in evidence.calls(rank) if (call.op, call.source, call.group) == wanted]


# -- the rank of a ring that waits elsewhere than its own loop would have gone: the others wait where theirs went


def find_strayed(evidence: Evidence, waits: Mapping[int, Wait], ring: Sequence[int]) -> Finding | None:
    """The only rank of all that wait that left its loop half way, if it is in the ring; None where nobody is, or more.

    Where several left their loops, they may have agreed on it.
    """
    if not ring:
        return None
    strayed = {rank: again for rank, wait in waits.items() if (again := _left_half_way(evidence, wait)) is not None}
    rank = next(iter(strayed), None)
    if rank is None or len(strayed) > 1 or rank not in ring:
        return None
    wait = waits[rank]
    others = [other for other in ring if other != rank]
    facts = Strayed(
        cycle=tuple(ring),
        wait=wait.facts,
        usual=_like(evidence, strayed[rank]),
        ranks=(rank,),
        others=tuple(others),
        step=wait.step.title,
        lines=(wait.call.source, *(waits[other].call.source for other in others)),
        seconds=waited_s(evidence, [wait]),
    )
    return Finding(kind=FindingKind.DEADLOCK, facts=facts)


def _left_half_way(evidence: Evidence, wait: Wait) -> Call | None:
    """The call that the loop of a rank went on with a round before, where it now waits in something else."""
    calls = evidence.calls(wait.rank)
    place = next(n for n, call in enumerate(calls) if call is wait.call)
    done = [(call.op, f"{call.source} {call.group}") for call in calls[: place + 1]]
    before = due(done[:-1])
    if before is None or (done[before] == done[-1] and calls[before].peer == wait.call.peer):
        return None
    return calls[before]


def _like(evidence: Evidence, again: Call) -> CallFacts:
    """A call of an earlier round, without its number: `all_reduce in [0, 1] at train.py:10`."""
    step = evidence.step(again)
    if step is not None and step.message:
        return call_facts(again, step)
    group = "" if step is None or step.group.label == "default" else step.group.title
    return CallFacts(rank=again.rank, name=again.op, source=again.source if step is not None else "", group=group)
