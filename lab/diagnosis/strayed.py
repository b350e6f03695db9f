"""The rank of a ring that waits elsewhere than its own loop would have gone: the others wait where theirs went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding
from lab.diagnosis.rhythm import due
from lab.diagnosis.waits import Wait, describe_call, describe_wait, took, waited
from lab.trace.model import Call


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
    wait, again = waits[rank], strayed[rank]
    sentence = (
        f"Rank {rank} waited in {describe_wait(wait)}{took(evidence, [wait])}, where in its rounds before it went on "
        f"with {_like(evidence, again)}. So ranks wait for each other in a ring "
        f"({' → '.join(map(str, (*ring, ring[0])))})."
    )
    others = [other for other in ring if other != rank]
    return Finding(
        kind="deadlock",
        sentence=sentence,
        ranks=(rank,),
        others=tuple(others),
        step=wait.step.title,
        lines=(wait.call.source, *(waits[other].call.source for other in others)),
        seconds=None if evidence.dumped else round(waited(evidence, [wait]), 6),
    )


def _left_half_way(evidence: Evidence, wait: Wait) -> Call | None:
    """The call that the loop of a rank went on with a round before, where it now waits in something else."""
    calls = evidence.calls(wait.rank)
    place = next(n for n, call in enumerate(calls) if call is wait.call)
    done = [(call.op, f"{call.source} {call.group}") for call in calls[: place + 1]]
    before = due(done[:-1])
    if before is None or (done[before] == done[-1] and calls[before].peer == wait.call.peer):
        return None
    return calls[before]


def _like(evidence: Evidence, again: Call) -> str:
    """A call of an earlier round, without its number: `all_reduce in [0, 1] at train.py:10`."""
    step = evidence.step(again)
    if step is None:
        return again.op
    what = describe_call(again, step) if step.message else again.op
    where = "" if step.message or step.group.label == "default" else f" in {step.group.title}"
    return f"{what}{where}{f' at {again.source}' if again.source else ''}"
