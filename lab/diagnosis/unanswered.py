"""Whose fault it is that nobody was at the other end of a message, as far as that can be told."""

from __future__ import annotations

from typing import NamedTuple

from lab.diagnosis.ends import at_lines
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import majority
from lab.diagnosis.rhythm import due, skipped
from lab.diagnosis.waits import Wait, describe_call
from lab.trace.model import Call
from lab.words import capital, name_ranks, plural

_FEWEST = 3
"""Ranks of which most can do alike."""


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


class LeftOut(NamedTuple):
    """What a rank did not call, though its loop had come to it."""

    line: str
    """Of its script, where it had called it before."""
    sentence: str


def left_out(evidence: Evidence, wait: Wait) -> LeftOut | None:
    """That the other end of a message that a rank waits in left it out; None where it did not.

    Its own loop would have come to it next, or had been about to when it went on with what comes after it there.
    """
    calls = evidence.calls(wait.on[0]) if len(wait.on) == 1 else []
    if calls and calls[-1].state == "unfinished":
        calls = calls[:-1]  # what it did instead
    beats = [(call.op, call.source) for call in calls]
    before = due(beats)
    if before is not None and _answers(calls[before], wait):
        return LeftOut(calls[before].source, f"In the rounds before, rank {wait.on[0]} did.")
    once = [call for call in map(calls.__getitem__, skipped(beats)) if _answers(call, wait)]
    if len(once) != 1:
        return None
    what = f"{describe_call(once[0], wait.step)}{at_lines(once)}"
    sentence = f"Rank {wait.on[0]} had left out {what} in one round, and gone on with what comes after it."
    return LeftOut(once[0].source, sentence)


def _answers(call: Call, wait: Wait) -> bool:
    """Whether a call is of the other end of what a rank waits in."""
    return call.peer == wait.rank and call.operation.sends == wait.call.operation.receives


def neighbours(evidence: Evidence, wait: Wait) -> str:
    """That a rank has another neighbour than the others at the same line, as a sentence; empty where it has not.

    Most ranks, of three or more, mean the rank that is so many further on than themselves, and this one does not.
    """
    size, turn = len(wait.step.group.ranks), _turn(evidence, wait.rank, wait.call)
    if turn is None or size < _FEWEST:
        return ""
    there = [(rank, _nth(evidence, rank, wait.call, turn)) for rank in wait.step.group.ranks]
    meant = {rank: (call.peer - rank) % size for rank, call in there if call is not None and call.peer is not None}
    usual, odd = majority(meant)
    if usual is None or odd != (wait.rank,) or len(meant) != size:
        return ""
    verb = "sends to" if wait.call.operation.sends else "receives from"
    others = name_ranks([rank for rank in meant if rank != wait.rank])
    whom = {1: "the next rank", size - 1: "the rank before"}.get(usual, f"the rank {plural(usual, 'place')} further on")
    return (
        f"{capital(f'rank {wait.rank}')} {verb} rank {wait.call.peer}{at_lines([wait.call])}, where "
        f"{others} {verb.replace('sends', 'send').replace('receives', 'receive')} {whom}, round and round."
    )


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
