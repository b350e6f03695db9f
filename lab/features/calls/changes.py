"""Compare the calls of ranks with earlier ones: align them, and describe the differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from lab.errors import ScenarioError
from lab.features.calls.pattern import CallPattern, parse_calls
from lab.trace.model import Buffer
from lab.words import format_bytes, format_count, join_words, name_ranks

_MOST_EDITS = 600
"""Most insertions and deletions that are aligned at once; time and memory grow with its square."""


class Stretch(NamedTuple):
    """A range of calls in two runs: the same calls, or calls that replace each other."""

    same: bool
    i1: int
    """Begin in the first run, from 0."""
    i2: int
    """End in the first run."""
    j1: int
    """Begin in the second run."""
    j2: int


class _Run(NamedTuple):
    """Consecutive calls that are equal in both runs."""

    i: int
    """Begin in the first run."""
    j: int
    """Begin in the second run."""
    length: int
    before: _Run | None = None
    """The previous run of equal calls."""


def align_calls(before: Sequence[str], after: Sequence[str]) -> list[Stretch]:
    """Return the equal and the different ranges of both sequences, in order."""
    stretches: list[Stretch] = []
    i = j = 0
    for run in (*_runs(before, after), _Run(len(before), len(after), 0)):
        if (run.i, run.j) != (i, j):
            stretches.append(Stretch(False, i, run.i, j, run.j))
        i, j = run.i + run.length, run.j + run.length
        if run.length and stretches and stretches[-1].same:
            stretches[-1] = stretches[-1]._replace(i2=i, j2=j)
        elif run.length:
            stretches.append(Stretch(True, run.i, i, run.j, j))
    return stretches


def _runs(first: Sequence[str], second: Sequence[str]) -> Iterator[_Run]:
    """Yield the equal runs, in order."""
    numbers: dict[str, int] = {}
    a, b = ([numbers.setdefault(text, len(numbers)) for text in texts] for texts in (first, second))
    i = j = 0
    while i < len(a) and j < len(b):
        far_i, far_j, last = _align(a[i:], b[j:])
        runs = []
        while last is not None:
            runs.append(_Run(i + last.i, j + last.j, last.length))
            last = last.before
        yield from reversed(runs)
        i, j = i + far_i, j + far_j


def _align(a: Sequence[int], b: Sequence[int]) -> tuple[int, int, _Run | None]:
    """Return how far both are aligned after the limit of edits, and the last equal run on the way.

    Myers, An O(ND) Difference Algorithm and Its Variations, 1986.
    """
    n, m = len(a), len(b)
    furthest: dict[int, tuple[int, _Run | None]] = {1: (0, None)}  # diagonal -> position in `a`
    best: tuple[int, int, _Run | None] = 0, 0, None
    for edits in range(_MOST_EDITS + 1):
        for diagonal in range(-edits + 2 * max(0, edits - m), edits - 2 * max(0, edits - n) + 1, 2):
            down, right = furthest.get(diagonal + 1, (-1, None)), furthest.get(diagonal - 1, (-1, None))
            i, last = down if right[0] < down[0] else (right[0] + 1, right[1])
            begin, j = i, i - diagonal
            while i < n and j < m and a[i] == b[j]:
                i += 1
                j += 1
            if i > begin:
                last = _Run(begin, begin - diagonal, i - begin, last)
            furthest[diagonal] = i, last
            if i <= n and j <= m and i + j >= best[0] + best[1]:
                best = i, j, last
            if (i, j) == (n, m):
                return best
    return best


_FARTHEST = 50
"""How many changes ahead to look for calls that moved."""
Calls = Mapping[int, Sequence[str]]
"""By rank: each call as a line."""
SourceLines = Callable[[int, int], str]
"""Returns the line of the script for a rank and the index of its call, from 0; empty if unknown."""


@dataclass(frozen=True, slots=True)
class CallChange:
    """A difference in what ranks call."""

    ranks: tuple[int, ...]
    text: str
    """A sentence without a full stop."""


class _Event(NamedTuple):
    """A difference in what one rank calls; `{who}`, `{Who}`, and `{s}` are placeholders for all ranks that share it."""

    what: str
    where: str
    position: int
    """Index of the earlier call, from 0."""
    now: int | None
    """Index of the current call; None if there is none."""


def describe_changes(
    before: Calls, after: Calls, source_line: SourceLines, *, than: str, ended: Mapping[int, bool]
) -> list[CallChange]:
    """Return the differences in what ranks call, in order.

    Args:
        before: The earlier calls.
        after: The current calls.
        source_line: Lines of the current calls.
        than: Name of `before`, such as `the snapshot`.
        ended: By rank: whether it reached its end. Otherwise nothing is missing after its last call.
    """
    known: dict[tuple[tuple[str, ...], tuple[str, ...], bool], list[_Event]] = {}
    shared: dict[str, dict[int, list[_Event]]] = {}
    everybody = sorted({*before, *after})
    for rank in everybody:
        key = tuple(before.get(rank, ())), tuple(after.get(rank, ())), ended.get(rank, True)
        if key not in known:
            known[key] = list(_Rank(*key, than).events())
        for event in known[key]:
            shared.setdefault(event.what, {}).setdefault(rank, []).append(event)
    ordered = sorted(shared.items(), key=lambda item: (next(iter(item[1].values()))[0].position, tuple(item[1])))
    return [CallChange(tuple(of), _sentence(what, of, everybody, source_line)) for what, of in ordered]


def _sentence(
    what: str, by_rank: Mapping[int, Sequence[_Event]], everybody: Sequence[int], source_line: SourceLines
) -> str:
    all_do = len(by_rank) == len(everybody) > 1
    who = "every rank" if all_do else name_ranks(by_rank)
    text = what.replace("{who}", "" if all_do else f"on {who} ").replace("{Who}", who)
    text = text.replace("{s}", "s" if all_do or len(by_rank) == 1 else "")
    times = {len(events) for events in by_rank.values()}
    often = "" if times == {1} else f", {times.pop()} times" if len(times) == 1 else ", several times"
    firsts = {rank: events[0] for rank, events in by_rank.items()}
    wheres = {first.where for first in firsts.values()}
    where = wheres.pop() if len(wheres) == 1 else ""
    where = f", first{where.lstrip(',')}" if often and where else where
    lines = {"" if first.now is None else source_line(rank, first.now) for rank, first in firsts.items()}
    at = join_words(sorted(lines)[:2])
    return f"{text}{often}{where}{f', at {at}' if at else ''}"


class _Rank:
    """Differences in what one rank calls, or several ranks with the same calls."""

    def __init__(self, before: tuple[str, ...], after: tuple[str, ...], ended: bool, than: str) -> None:
        self.before = before if ended else before[: len(after)]
        self.after, self.than, self.ended = after, than, ended
        self.missing = not before

    def events(self) -> Iterator[_Event]:
        """Yield the differences, in order."""
        changes = [it for one in align_calls(self.before, self.after) if not one.same for it in self._refined(one)]
        if not self.ended and changes and changes[-1].j1 == changes[-1].j2 == len(self.after):
            changes.pop()
        moved = set[int]()
        for number, change in enumerate(changes):
            if number in moved:
                continue
            if (other := self._moved_to(changes, number, moved)) is not None:
                moved.add(other)
                yield self._move(*sorted((change, changes[other]), key=lambda one: one.j1 == one.j2))
            else:
                yield self._changed(change)

    def _refined(self, one: Stretch) -> Iterator[Stretch]:
        """Split a replaced range into pairs of calls with the same operation."""
        kinds = (map(_kind_of, calls) for calls in (self.before[one.i1 : one.i2], self.after[one.j1 : one.j2]))
        for same, a1, a2, b1, b2 in align_calls(*map(list, kinds)):
            i, j = one.i1 + a1, one.j1 + b1
            if same or a2 - a1 == b2 - b1:
                yield from (Stretch(False, i + n, i + n + 1, j + n, j + n + 1) for n in range(a2 - a1))
            else:
                yield Stretch(False, i, one.i1 + a2, j, one.j1 + b2)

    def _moved_to(self, changes: Sequence[Stretch], number: int, matched: set[int]) -> int | None:
        """Return a later change that reverts this one: calls that are missing here appear there, or the reverse."""
        one = changes[number]
        for other in range(number + 1, min(number + _FARTHEST, len(changes))):
            gone, come = (one, changes[other]) if one.j1 == one.j2 else (changes[other], one)
            only = gone.j1 == gone.j2 and come.i1 == come.i2
            if other not in matched and only and self.before[gone.i1 : gone.i2] == self.after[come.j1 : come.j2]:
                return other
        return None

    def _move(self, come: Stretch, gone: Stretch) -> _Event:
        what = _name_calls(self.after[come.j1 : come.j2])
        later = come.i1 >= gone.i2
        neighbour = _name_of(self.after[come.j1 - 1] if later else self.after[come.j2])
        now, then = ("after", "before") if later else ("before", "after")
        text = f"{{Who}} call{{s}} {what} {now} {neighbour}, but {self.than} has it {then}"
        return _Event(text, "", min(come.i1, gone.i1), come.j1)

    def _changed(self, one: Stretch) -> _Event:
        gone, come = self.before[one.i1 : one.i2], self.after[one.j1 : one.j2]
        now = one.j1 if come else None
        if self.missing:
            return _Event(f"{{Who}} make{{s}} {format_count(len(come), 'call')} that {self.than} lacks", "", 0, 0)
        where = f", as call {one.i1 + 1}"
        if not gone:
            extra = f"one more {_name_of(come[0])}" if len(come) == 1 else f"{len(come)} more calls: {_kinds(come)}"
            what, where = f"{{Who}} make{{s}} {extra}", self._between(one.i1)
        elif not come:
            what = f"{{Who}} skip{{s}} {_name_calls(gone)} of {self.than}"
            where = f", call {one.i1 + 1}" if len(gone) == 1 else f", calls {one.i1 + 1} to {one.i2}"
        elif len(gone) == len(come) == 1:
            what = _replaced(gone[0], come[0], self.than)
        else:
            what = f"{{Who}} call{{s}} {_name_calls(come)}, but {self.than} has {_name_calls(gone)}"
        return _Event(what, where, one.i1, now)

    def _between(self, position: int) -> str:
        if position == 0:
            return " before the first call"
        if position == len(self.before):
            return f" after the last call of {self.than}" if self.ended else ""
        return f" between calls {position} and {position + 1}"


_MOST_KINDS = 3
_NUMBERS = ("", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


@lru_cache(maxsize=4096)
def _parsed(text: str) -> CallPattern:
    try:
        return parse_calls(text, longest=len(text))[0]
    except (ScenarioError, IndexError):  # an unknown operation or dtype
        return CallPattern(text=text, op=text.partition(" ")[0])


def _kind_of(text: str) -> str:
    """Return what a call keeps when it changes: its operation, group, and bucket."""
    call = _parsed(text)
    return f"{call.op} {call.group or ''} {call.bucket or ''}"


def _bytes(call: CallPattern) -> int:
    """Return the bytes of its tensors; 0 if it has none, or if a size is unknown."""
    known = [Buffer(dtype, shape).bytes for dtype, shape in call.tensors or () if shape is not None]
    return sum(known) if len(known) == len(call.tensors or ()) else 0


def _size(call: CallPattern) -> str:
    return format_bytes(_bytes(call)) if call.tensors and all(shape is not None for _, shape in call.tensors) else ""


def _name_of(text: str) -> str:
    """Return `all_reduce (SUM float32[1024], 4.1 kB)`, or `all_reduce of DDP's second bucket (2.1 MB)`."""
    call = _parsed(text)
    if call.bucket is not None:
        return f"{call.op} of {_bucket(call)} ({_size(call)})"
    inside = ", ".join(filter(None, [text.removeprefix(call.op).strip(), _size(call)]))
    return f"{call.op} ({inside})" if inside else call.op


def _bucket(call: CallPattern) -> str:
    number = call.bucket or 0
    which = _NUMBERS[number] + " bucket" if 0 < number < len(_NUMBERS) else f"bucket {number}"
    return f"DDP's {which}" if call.module in (None, 1) else f"the {which} of DDP module {call.module}"


def _name_calls(texts: Sequence[str]) -> str:
    """Name a single call; for several, their number and kinds."""
    return _name_of(texts[0]) if len(texts) == 1 else f"{len(texts)} calls ({_kinds(texts)})"


def _kinds(texts: Sequence[str]) -> str:
    counts = Counter(texts)
    words = [(f"{n} times " if n > 1 else "") + _name_of(text) for text, n in [*counts.items()][:_MOST_KINDS]]
    rest = len(counts) - len(words)
    return join_words([*words, f"{rest} other{'s' * (rest > 1)}" if rest else ""])


def _replaced(gone: str, come: str, than: str) -> str:
    """Describe a call that replaces another."""
    was, now = _parsed(gone), _parsed(come)
    if now.bucket is not None and was != now == replace(was, text=now.text, tensors=now.tensors):
        grew = "grew" if _bytes(now) > _bytes(was) else "shrank"
        return f"{{who}}{_bucket(now)} {grew} from {_size(was)} to {_size(now)}"
    names = _name_of(come), _name_of(gone)
    one, other = (come, gone) if names[0] == names[1] else names
    return f"{{Who}} call{{s}} {one}, but {than} has {other}"
