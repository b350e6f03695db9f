"""Which of two ranks left its own rhythm, where there is no majority to tell.

The calls of a training loop repeat. Of two ranks that did the same until some call and then not, the one whose call is
not what its loop would have done next is out of step. Where the loop's body is over, either of them may rightly have
left the loop: then only a call out of the middle of the body shows that its rank has not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import CallFacts, Finding, FindingKind, Slipped
from lab.trace.model import Call
from lab.trace.steps import Step

_LONGEST = 64
"""Calls of the longest loop body that is looked for."""
_TURNS = 2
"""A body has to have been repeated so often to be believed."""

Beat = tuple[str, str]
"""Operation and line."""


def beats(calls: Sequence[Call], group: str) -> list[Beat]:
    """The collectives of a rank in a group, in order."""
    return [(call.op, call.source) for call in calls if call.group == group and call.seq is not None]


def out_of_step(one: Sequence[Beat], other: Sequence[Beat]) -> int | None:
    """0 if the first sequence left the common rhythm, 1 if the second did, None if that cannot be told."""
    common = 0
    while common < min(len(one), len(other)) and one[common] == other[common]:
        common += 1
    body, position = _body(one[:common])
    if not body:
        return None
    here = [sequence[common] if common < len(sequence) else None for sequence in (one, other)]
    expected = body[position]
    if (here[0] == expected) == (here[1] == expected):
        return None
    strayed = 0 if here[1] == expected else 1
    return strayed if position or here[strayed] in body else None


def due(done: Sequence[Beat]) -> int | None:
    """Where in these calls the one stands that its loop would have done next; None where they end no body half way."""
    body, position = _body(done)
    return len(done) - len(body) if position else None


def skipped(done: Sequence[Beat]) -> list[int]:
    """Where in these calls those stand that were left out a round later, in the middle of a loop that then went on."""
    found = []
    runs = dict.fromkeys(range(1, _LONGEST + 1), 0)  # by period: how many calls in a row were those one period before
    for n, beat in enumerate(done):
        believed = [period for period, run in runs.items() if run + period >= _TURNS * period]
        period = max(believed, key=lambda period: runs[period] + period, default=0)
        if period and runs[period] % period and beat != done[n - period]:
            body = done[n - period : n]
            if [*body, *body][1:3] == [*done[n : n + 2]]:
                found.append(n - period)
        runs = {period: run + 1 if n >= period and done[n - period] == beat else 0 for period, run in runs.items()}
    return found


def body_of(done: Sequence[Beat]) -> Sequence[Beat]:
    """The body of the loop that these calls end in, wherever in it they end; empty where nothing repeats."""
    return _body(done)[0]


def _body(done: Sequence[Beat]) -> tuple[Sequence[Beat], int]:
    """The body of the loop that these calls end in, and how far into it they end; empty where nothing repeats."""
    length, period = 0, 0
    for candidate in range(1, min(_LONGEST, len(done) // _TURNS) + 1):
        tail = candidate
        while tail < len(done) and done[-tail - 1] == done[-tail - 1 + candidate]:
            tail += 1
        if tail > length and tail >= _TURNS * candidate:
            length, period = tail, candidate
    start = len(done) - length
    return done[start : start + period], length % period if period else 0


# -- ranks that left out a call of their group, or made one more: from then on they meet the others one call off

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
    calls = theirs if slip.calls > 0 else mine
    call, step = calls[slip.at], evidence.step(mine[slip.at])
    lines = [each.source for each in calls]
    turn = -(-lines[: slip.at + 1].count(call.source) // max(1, [line for _, line in body].count(call.source)))
    facts = Slipped(
        calls=slip.calls,
        call=CallFacts(rank=call.rank, name=call.op, source=call.source),
        turn=turn if lines.count(call.source) > 1 else 0,
        met_off=step.title if step is not None and not body else "",
        ranks=tuple(ranks),
        others=tuple(common),
        step=step.title if step is not None else "",
        lines=(mine[slip.at].source, theirs[slip.at].source),
    )
    return Finding(kind=FindingKind.SLIPPED, facts=facts)
