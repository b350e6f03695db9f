"""Which of two ranks left its own rhythm, where there is no majority to tell.

The calls of a training loop repeat. Of two ranks that did the same until some call and then not, the one whose call is
not what its loop would have done next is out of step. Where the loop's body is over, either of them may rightly have
left the loop: then only a call out of the middle of the body shows that its rank has not.
"""

from __future__ import annotations

from collections.abc import Sequence

from lab.trace.model import Call

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
