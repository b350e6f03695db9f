"""Which of two ranks left its own rhythm, where there is no majority to tell.

The calls of a training loop repeat. Of two ranks that did the same until some call and then not, the one whose call is
not what its loop would have done next is out of step; but only in the middle of the loop's body, because at its end
either of them may rightly have left the loop.
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
    expected = _next(one[:common])
    if expected is None:
        return None
    here = [sequence[common] if common < len(sequence) else None for sequence in (one, other)]
    if (here[0] == expected) == (here[1] == expected):
        return None
    return 0 if here[1] == expected else 1


def _next(done: Sequence[Beat]) -> Beat | None:
    """What comes next in the middle of a loop's body; None at its end, or where nothing repeats."""
    length, period = 0, 0
    for candidate in range(1, min(_LONGEST, len(done) // _TURNS) + 1):
        tail = candidate
        while tail < len(done) and done[-tail - 1] == done[-tail - 1 + candidate]:
            tail += 1
        if tail > length and tail >= _TURNS * candidate:
            length, period = tail, candidate
    return done[-period] if period and length % period else None
