"""Ranks that left out a call of their group, or made one more: from then on they meet the others one call off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding
from lab.diagnosis.rhythm import Beat, beats, body_of, out_of_step
from lab.trace.model import Call
from lab.trace.steps import Step
from lab.words import name_ranks, plural

_MOST_CALLS = 8
"""So many calls left out in a row are looked for."""
_LEAST_MATCHED = 2
"""At least this many calls after the slip must be those of the others."""
_PAIR = 2
"""Ranks without a majority."""


class _Slip(NamedTuple):
    """Where one sequence of calls left another."""

    at: int
    """Position in both."""
    calls: int
    """How many it left out; below 0: how many more it made."""


def find_slips(evidence: Evidence) -> list[Finding]:
    """In each group with a step that never ended, ranks that had left out calls of the others or made more.

    Where no group tells, over all groups and messages: a step may hang in another group than where a call was left out.
    """
    steps_of: dict[str, list[Step]] = {}
    for step in evidence.steps:
        if not step.message:
            steps_of.setdefault(step.group.name, []).append(step)
    hung = [steps[0].group for steps in steps_of.values() if any(step.state != "completed" for step in steps)]
    found = [finding for group in hung for finding in _slips_in(evidence, group.name, group.ranks)]
    if found or all(step.state == "completed" for step in evidence.steps):
        return found
    return _slips_anywhere(evidence)


def _slips_in(evidence: Evidence, group: str, members: Sequence[int]) -> list[Finding]:
    calls = {rank: [call for call in evidence.calls(rank) if call.group == group and call.seq] for rank in members}
    done = {rank: beats(calls[rank], group) for rank in members if calls[rank]}
    common = _in_step(done)
    odd = [rank for rank in done if rank not in common]
    if not common or not odd:
        return []
    longest = max(common, key=lambda rank: len(done[rank]))
    found: dict[tuple[_Slip, Beat], list[int]] = {}
    for rank in odd:
        slip = _slip(done[rank], done[longest])
        if slip is not None:
            beat = done[longest if slip.calls > 0 else rank][slip.at]
            found.setdefault((slip, beat), []).append(rank)
    return [
        _finding(evidence, slip, ranks, common, calls[longest], calls[ranks[0]]) for (slip, _), ranks in found.items()
    ]


def _slips_anywhere(evidence: Evidence) -> list[Finding]:
    """A rank that left the loop which it and all others, two at least, had been in."""
    calls = {rank: ours for rank in sorted(evidence.ranks) if (ours := evidence.calls(rank))}
    done = {rank: [(call.op, call.source) for call in ours] for rank, ours in calls.items()}
    common = _in_step(done) if len(done) > _PAIR else []
    odd = [rank for rank in done if rank not in common]
    if not common or len(odd) != 1:
        return []
    longest = max(common, key=lambda rank: len(done[rank]))
    slip = _slip(done[odd[0]], done[longest])
    body = body_of(done[longest][: slip.at]) if slip is not None else ()
    return [_finding(evidence, slip, odd, common, calls[longest], calls[odd[0]], body)] if slip and body else []


def _in_step(done: dict[int, list[Beat]]) -> list[int]:
    """Ranks that made the same calls, as far as each came: more than half, or of two the one that kept its rhythm."""
    if len(done) == _PAIR:
        one, other = done
        who = out_of_step(done[one], done[other])
        return [] if who is None else [(other, one)[who]]
    for rank in sorted(done, key=lambda rank: -len(done[rank])):
        same = [other for other in done if done[other] == done[rank][: len(done[other])]]
        if 2 * len(same) > len(done):
            return sorted(same)
    return []


def _slip(mine: Sequence[Beat], theirs: Sequence[Beat]) -> _Slip | None:
    """The first place where they part, if one goes on there as the other does a few calls later."""
    at = next((n for n, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), None)
    if at is None:
        return None
    for calls in range(1, _MOST_CALLS + 1):
        for sign, behind, ahead in ((1, theirs, mine), (-1, mine, theirs)):
            pairs = list(zip(ahead[at:], behind[at + calls :], strict=False))
            if len(pairs) >= _LEAST_MATCHED and all(a == b for a, b in pairs):
                return _Slip(at, sign * calls)
    return None


def _finding(
    evidence: Evidence,
    slip: _Slip,
    ranks: Sequence[int],
    common: Sequence[int],
    theirs: list[Call],
    mine: list[Call],
    body: Sequence[Beat] = (),
) -> Finding:
    """Where ranks slipped, by the calls of one group; with `body`, that of their loop, by all that they called."""
    less = slip.calls > 0
    call = (theirs if less else mine)[slip.at]
    step = evidence.step(mine[slip.at])
    lines = [each.source for each in (theirs if less else mine)]
    turn = -(-lines[: slip.at + 1].count(call.source) // max(1, [line for _, line in body].count(call.source)))
    again = f" in round {turn}" if lines.count(call.source) > 1 else ""
    many, number = len(ranks) > 1, "one call" if abs(slip.calls) == 1 else plural(abs(slip.calls), "call")
    it, are = ("they", "are") if many else ("it", "is")
    first = f"{call.op}{f' at {call.source}' if call.source else ''}"
    further = abs(slip.calls) - 1
    rest = f" and the {f'{further} calls' if further > 1 else 'call'} after it" if further else ""
    did = f"left out {first}{rest}" if less else f"called {first}{rest} once more than {name_ranks(common)}"
    where = f"{'ahead of' if less else 'behind'} {name_ranks(common)}"
    sentence = f"{name_ranks(ranks)} {are} {number} {where}:{again} {it} {did}."
    if step is not None and not body:
        sentence += f" From {step.title} on they met {number} off."
    met = (mine[slip.at].source, theirs[slip.at].source)
    title = step.title if step is not None else ""
    return Finding(kind="slipped", sentence=sentence, ranks=tuple(ranks), others=tuple(common), step=title, lines=met)
