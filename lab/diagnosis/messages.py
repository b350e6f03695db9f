"""Sends that nobody receives, and receives that nobody sends to."""

from __future__ import annotations

from collections.abc import Mapping

from lab.diagnosis.ends import together, what_it_did
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding
from lab.diagnosis.unanswered import left_out, neighbours
from lab.diagnosis.waits import Wait, describe_wait, majority_step, took, waited
from lab.trace.steps import Step
from lab.words import capital, listing, plural


def find_unmatched(evidence: Evidence, waits: Mapping[int, Wait]) -> list[Finding]:
    """Messages that ranks waited in, and that cannot come even if every other rank goes on as it can.

    A message whose other end may still come, because that rank is in its own code or waits for such a one, is none; nor
    is one in a ring of messages only, of which each may come when another one does.
    """
    pending = {rank: wait for rank, wait in sorted(waits.items()) if wait.step.message and wait.on}
    for wait in pending.values():
        unlike = neighbours(evidence, wait)
        if unlike:
            return [_finding(unlike, (wait.rank,), (wait,), evidence)]
    found, told = [], set[int]()
    for rank, wait in pending.items():
        peer = wait.on[0] if len(wait.on) == 1 else None
        other = pending.get(peer) if peer is not None else None
        if rank in told or (other is not None and other.rank in told):
            continue
        if peer is not None and peer not in evidence.ranks:
            found.append(_nobody_of_that_number(wait, peer, evidence))
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


def _nobody_of_that_number(wait: Wait, peer: int, evidence: Evidence) -> Finding:
    """A message to or from a rank that there is not."""
    last = max(evidence.ranks)
    sentence = (
        f"Rank {wait.rank} waited in {describe_wait(wait)}{took(evidence, [wait])}: there is no rank {peer}, the last "
        f"one is {last}."
    )
    return _finding(sentence, (wait.rank,), (wait,), evidence)


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
    what = []
    if send.call.tag != receive.call.tag:
        what.append((f"with tag {send.call.tag}", f"with tag {receive.call.tag}", "tags"))
    if send.call.group != receive.call.group:
        what.append((f"in {send.step.group.title}", f"in {receive.step.group.title}", "groups"))
    sent, wanted, names = ([one[place] for one in what] for place in range(3))
    sentence = (
        f"{_does(send, 'sends to', receive.rank, sent)}, and {_does(receive, 'receives from', send.rank, wanted)}: "
        f"the {listing(names)} differ, so both wait{took(evidence, [send, receive], ', {} by now')}."
    )
    return _finding(sentence, (), (send, receive), evidence)


def _does(wait: Wait, verb: str, peer: int, which: list[str]) -> str:
    where = f" at {wait.call.source}" if wait.call.source else ""
    return f"{' '.join([f'rank {wait.rank} {verb} rank {peer}', *which])}{where}"


def _other_peers(wait: Wait, other: Wait, evidence: Evidence, waits: Mapping[int, Wait]) -> Finding:
    """A rank that waits for another's message, or for it to take one, while that one waits for somebody else."""
    rest = [rank for rank in other.on if rank != wait.rank]
    did = "; ".join(together(rest, lambda rank: what_it_did(evidence, rank, waits)))
    sentence = (
        f"Rank {wait.rank} waited in {describe_wait(wait)}, and rank {other.rank} in {describe_wait(other)}"
        f"{took(evidence, [wait, other], ', {}')}: neither has anybody at its other end{f'; {did}' if did else ''}."
    )
    return _finding(sentence, (), (wait, other), evidence)


def _nobody_there(wait: Wait, evidence: Evidence, waits: Mapping[int, Wait]) -> Finding:
    """A message whose other end waits in something else."""
    before = sum(step.state == "completed" and _same_ends(step, wait.step) for step in evidence.steps)
    who = f"rank {wait.on[0]}" if len(wait.on) == 1 else "nobody"
    verb = "never received it"
    if wait.call.operation.receives:
        more = f" more than the {plural(before, 'message')} before" if before else ""
        verb = f"sent it {'nothing' if len(wait.on) == 1 else 'anything'}{more}"
    did = "; ".join(together(wait.on, lambda rank: what_it_did(evidence, rank, waits)))
    sentence = f"Rank {wait.rank} waited in {describe_wait(wait)}{took(evidence, [wait])}, and {who} {verb}: {did}."
    most = majority_step(dict(waits))
    alone = most is not None and most != wait.step.number
    as_before = before and wait.call.operation.receives  # then who lacks a message may well be right
    named: tuple[int, ...] = (wait.rank,) if alone and not as_before else ()
    others = [waits[rank] for rank in wait.on if rank in waits]
    if (left := left_out(evidence, wait)) is not None:
        return _finding(f"{sentence} {left.sentence}", wait.on, (wait, *others), evidence, left.line)
    return _finding(sentence, named, (wait, *others), evidence)


def _same_ends(message: Step, waited: Step) -> bool:
    """Whether a message went between the ends of one that was waited for, of which one may be any rank."""
    ends = zip((waited.source, waited.destination), (message.source, message.destination), strict=True)
    return message.message and all(wanted in (None, end) for wanted, end in ends)


def _finding(
    sentence: str, ranks: tuple[int, ...], ours: tuple[Wait, ...], evidence: Evidence, first_line: str = ""
) -> Finding:
    return Finding(
        kind="unmatched",
        sentence=capital(sentence),
        ranks=ranks,
        others=tuple(wait.rank for wait in ours if wait.rank not in ranks),
        step=ours[0].step.title,
        lines=(first_line, *(wait.call.source for wait in ours)),
        seconds=None if evidence.dumped else round(waited(evidence, [*ours[:2]]), 6),
    )
