"""What ranks call otherwise than before: their calls aligned, and the difference in words."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from lab.errors import ScenarioError
from lab.features.calls.notation import render_tensors
from lab.features.calls.pattern import CallPattern, parse_calls
from lab.words import format_bytes, listing, name_ranks, plural

_MOST_EDITS = 600
"""Calls that have gone or come and are looked at together; time and memory go with the square of it."""


class Stretch(NamedTuple):
    """Calls of two runs from one place to another: the same ones, or those that stand in their place."""

    same: bool
    i1: int
    """Its beginning in the first run, from 0."""
    i2: int
    """Its end there."""
    j1: int
    """Its beginning in the second run."""
    j2: int


def stretches(before: Sequence[str], after: Sequence[str]) -> list[Stretch]:
    """What is the same in both and what is not, in order."""
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    first, second = before[start : len(before) - end], after[start : len(after) - end]
    known = [(i, i) for i in range(start)]
    known += [(start + i, start + j) for i, j in _pairs(first, second)]
    known += [(len(before) - left, len(after) - left) for left in range(end, 0, -1)]
    return list(_joined(known, len(before), len(after)))


def _joined(pairs: Sequence[tuple[int, int]], n: int, m: int) -> Iterator[Stretch]:
    """Pairs that follow each other as one stretch, and what lies between them."""
    i1 = j1 = 0  # where the last pair ended
    first = (0, 0)  # where those began that follow each other
    for i, j in [*pairs, (n, m)]:
        if (i, j) != (i1, j1):
            if first != (i1, j1):
                yield Stretch(True, first[0], i1, first[1], j1)
            yield Stretch(False, i1, i, j1, j)
            first = i, j
        i1, j1 = i + 1, j + 1
    if first != (n, m):
        yield Stretch(True, first[0], n, first[1], m)


def _pairs(first: Sequence[str], second: Sequence[str]) -> list[tuple[int, int]]:
    """Which of both are the same, in order."""
    numbers: dict[str, int] = {}
    a = [numbers.setdefault(text, len(numbers)) for text in first]
    b = [numbers.setdefault(text, len(numbers)) for text in second]
    found: list[tuple[int, int]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        pairs, (far_i, far_j) = _aligned(a[i:], b[j:])
        found += ((i + one, j + other) for one, other in pairs)
        i, j = i + far_i, j + far_j
    return found


def _aligned(a: Sequence[int], b: Sequence[int]) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    """The pairs from the beginnings on as far as so many have gone or come, and how far that is."""
    n, m = len(a), len(b)
    middle = _MOST_EDITS + 1
    furthest = [0] * (2 * middle + 1)  # in `a`, by diagonal
    steps: list[array[int]] = []
    far, needed = (0, 0), 1
    for edits in range(_MOST_EDITS + 1):
        steps.append(array("q", furthest[middle - edits - 1 : middle + edits + 2]))
        for diagonal in range(-edits + 2 * max(0, edits - m), edits - 2 * max(0, edits - n) + 1, 2):
            at = middle + diagonal
            down = diagonal == -edits or (diagonal != edits and furthest[at - 1] < furthest[at + 1])
            i = furthest[at + 1] if down else furthest[at - 1] + 1
            j = i - diagonal
            while i < n and j < m and a[i] == b[j]:
                i += 1
                j += 1
            furthest[at] = i
            if i <= n and j <= m and i + j >= sum(far):
                far, needed = (i, j), edits + 1
            if far == (n, m):
                return _way_back(steps, *far), far
    return _way_back(steps[:needed], *far), far


def _way_back(steps: Sequence[array[int]], i: int, j: int) -> list[tuple[int, int]]:
    """The pairs on the way that led to the end, from what was the furthest before each edit."""
    pairs = []
    for edits in range(len(steps) - 1, -1, -1):
        known, diagonal = steps[edits], i - j
        at = diagonal + edits + 1
        down = diagonal == -edits or (diagonal != edits and known[at - 1] < known[at + 1])
        from_i = known[at + 1] if down else known[at - 1]
        from_j = from_i - diagonal - (1 if down else -1)
        first_i = 0 if edits == 0 else from_i if down else from_i + 1
        while i > first_i:
            i, j = i - 1, j - 1
            pairs.append((i, j))
        i, j = from_i, from_j
    return pairs[::-1]


_FARTHEST = 50
"""Calls that changed places are looked for among so many changes."""
Calls = Mapping[int, Sequence[str]]
"""What each rank called, by rank: every call as a line."""
Places = Callable[[int, int], str]
"""The line of the script that makes a call: rank, and number of the call from 0; empty where that is not known."""


@dataclass(frozen=True, slots=True)
class Told:
    """Something that ranks call otherwise."""

    ranks: tuple[int, ...]
    text: str
    """A sentence without a full stop."""


class _Event(NamedTuple):
    """Something that one rank calls otherwise; `{who}`, `{Who}` and `{s}` in it stand for all who do."""

    what: str
    where: str
    place: int
    """Number of the call of before, from 0, at which it is."""
    now: int | None
    """Number of the call that does it now; None where none does."""


@dataclass(slots=True)
class _Shared:
    """The same of several ranks, perhaps several times."""

    times: dict[int, int] = field(default_factory=dict)
    """By rank."""
    where: dict[str, None] = field(default_factory=dict)
    at: dict[str, None] = field(default_factory=dict)
    place: int = 0


def tell_changes(before: Calls, after: Calls, place: Places, *, than: str, ended: Mapping[int, bool]) -> list[Told]:
    """What ranks call otherwise, the first first.

    Args:
        before: what they called.
        after: what they call now.
        place: where they call it now.
        than: what `before` is: `the snapshot`.
        ended: of each rank, whether it came to the end; of one that did not, nothing is missing after its last call.
    """
    known: dict[tuple[tuple[str, ...], tuple[str, ...], bool], list[_Event]] = {}
    shared: dict[str, _Shared] = {}
    everybody = sorted({*before, *after})
    for rank in everybody:
        calls = tuple(before.get(rank, ())), tuple(after.get(rank, ()))
        key = (*calls, ended.get(rank, True))
        if key not in known:
            known[key] = list(_Rank(*key, than).events())
        for event in known[key]:
            one = shared.setdefault(event.what, _Shared(place=event.place))
            one.times[rank] = one.times.get(rank, 0) + 1
            if one.times[rank] == 1:
                one.where[event.where] = None
                one.at[place(rank, event.now) if event.now is not None else ""] = None
    told = [Told(tuple(one.times), _sentence(what, one, everybody)) for what, one in shared.items()]
    order = {id(one): (kept.place, one.ranks) for one, kept in zip(told, shared.values(), strict=True)}
    return sorted(told, key=lambda one: order[id(one)])


def _sentence(what: str, one: _Shared, everybody: Sequence[int]) -> str:
    all_do = len(one.times) == len(everybody) > 1
    who = "every rank" if all_do else name_ranks(one.times)
    text = what.replace("{who}", "" if all_do else f"on {who} ").replace("{Who}", who)
    text = text.replace("{s}", "s" if all_do or len(one.times) == 1 else "")
    times = set(one.times.values())
    often = (
        f", {times.pop()} times" if len(times) == 1 and times != {1} else ", several times" if len(times) > 1 else ""
    )
    where = next(iter(one.where)) if len(one.where) == 1 else ""
    where = f", first{where.lstrip(',')}" if often and where else where
    at = listing(sorted(one.at)[:2])
    return f"{text}{often}{where}{f', at {at}' if at else ''}"


class _Rank:
    """What one rank calls otherwise; or several that do the same."""

    def __init__(self, before: tuple[str, ...], after: tuple[str, ...], ended: bool, than: str) -> None:
        self.before = before if ended else before[: len(after)]
        self.after = after
        self.than = than
        self.ended = ended
        self.missing = not before

    def events(self) -> Iterator[_Event]:
        """What is otherwise, in order."""
        found = stretches(self.before, self.after)
        changes = [change for one in found if not one.same for change in self._refined(one)]
        if not self.ended and changes and changes[-1].j1 == changes[-1].j2 == len(self.after):
            changes.pop()
        moved = set[int]()
        for number, change in enumerate(changes):
            if number in moved:
                continue
            other = self._moved_to(changes, number, moved)
            if other is not None:
                moved.add(other)
                yield self._move(*sorted((change, changes[other]), key=lambda one: one.j1 == one.j2))
            else:
                yield self._told(change)

    def _refined(self, one: Stretch) -> Iterator[Stretch]:
        """Calls that stand in the place of others, each with the one of its operation that it stands for."""
        _, i1, i2, j1, j2 = one
        if i1 == i2 or j1 == j2:
            yield one
            return
        kinds = [kind_of(text) for text in self.before[i1:i2]], [kind_of(text) for text in self.after[j1:j2]]
        for same, a1, a2, b1, b2 in stretches(*kinds):
            if same or a2 - a1 == b2 - b1:
                for pair in range(a2 - a1):
                    yield Stretch(False, i1 + a1 + pair, i1 + a1 + pair + 1, j1 + b1 + pair, j1 + b1 + pair + 1)
            else:
                yield Stretch(False, i1 + a1, i1 + a2, j1 + b1, j1 + b2)

    def _moved_to(self, changes: Sequence[Stretch], number: int, taken: set[int]) -> int | None:
        """The later change that takes back this one: what went here comes there, or the other way round."""
        one = changes[number]
        for other in range(number + 1, min(number + _FARTHEST, len(changes))):
            gone, come = (one, changes[other]) if one.j1 == one.j2 else (changes[other], one)
            only = gone.j1 == gone.j2 and come.i1 == come.i2
            if other not in taken and only and self.before[gone.i1 : gone.i2] == self.after[come.j1 : come.j2]:
                return other
        return None

    def _move(self, come: Stretch, gone: Stretch) -> _Event:
        what = several(self.after[come.j1 : come.j2])
        later = come.i1 >= gone.i2
        beside = self.after[come.j1 - 1] if later else self.after[come.j2]
        order = ("after", "before") if later else ("before", "after")
        text = f"{{Who}} call{{s}} {what} {order[0]} {name_of(beside)}, where {self.than} has it {order[1]}"
        return _Event(text, "", min(come.i1, gone.i1), come.j1)

    def _told(self, one: Stretch) -> _Event:
        gone, come = self.before[one.i1 : one.i2], self.after[one.j1 : one.j2]
        now = one.j1 if come else None
        if self.missing:
            return _Event(f"{{Who}} make{{s}} {plural(len(come), 'call')}, where {self.than} has none", "", 0, 0)
        if not gone:
            more = f"one more {name_of(come[0])}" if len(come) == 1 else f"{len(come)} more calls: {_kinds(come)}"
            return _Event(f"{{Who}} make{{s}} {more}", self._between(one.i1), one.i1, now)
        if not come:
            as_call = f", call {one.i1 + 1}" if len(gone) == 1 else f", calls {one.i1 + 1} to {one.i2}"
            return _Event(f"{{Who}} leave{{s}} out {several(gone)} of {self.than}", as_call, one.i1, None)
        where = f", as call {one.i1 + 1}"
        if len(gone) == len(come) == 1:
            return _Event(replaced(gone[0], come[0], self.than), where, one.i1, now)
        instead = f"{{Who}} call{{s}} {several(come)}, where {self.than} has {several(gone)}"
        return _Event(instead, where, one.i1, now)

    def _between(self, place: int) -> str:
        if place == 0:
            return " before the first call"
        if place == len(self.before):
            return f" after the last call of {self.than}" if self.ended else ""
        return f" between calls {place} and {place + 1}"


_MOST_KINDS = 3
_NUMBERS = ("", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


@lru_cache(maxsize=4096)
def _parsed(text: str) -> CallPattern:
    try:
        return parse_calls(text, longest=len(text))[0]
    except (ScenarioError, IndexError):  # an operation or a dtype that is not known here
        return CallPattern(text=text, op=text.partition(" ")[0])


def kind_of(text: str) -> str:
    """What two calls have in common of which one may have become the other: operation, group and bucket."""
    call = _parsed(text)
    return f"{call.op} {call.group or ''} {call.bucket or ''}"


def _bytes(call: CallPattern) -> int | None:
    """Of its tensors; None where their sizes are open."""
    total = 0
    for dtype, shape in call.tensors or ():
        if shape is None:
            return None
        count = 1
        for size in shape:
            count *= size
        bits = "".join(letter for letter in dtype.partition("_")[0] if letter.isdecimal())
        total += count * (int(bits) // 8 if bits else 1)
    return total if call.tensors else None


def _size(call: CallPattern) -> str:
    size = _bytes(call)
    return "" if size is None else format_bytes(size)


def name_of(text: str) -> str:
    """`all_reduce (SUM float32[1024], 4.1 kB)`; `all_reduce of DDP's second bucket (2.1 MB)`."""
    call = _parsed(text)
    if call.bucket is not None:
        return f"{call.op} of {_bucket(call)} ({_size(call)})"
    rest = text.removeprefix(call.op).strip()
    inside = ", ".join(filter(None, [rest, _size(call)]))
    return f"{call.op} ({inside})" if inside else call.op


def _bucket(call: CallPattern) -> str:
    number = call.bucket or 0
    which = _NUMBERS[number] + " bucket" if 0 < number < len(_NUMBERS) else f"bucket {number}"
    return f"DDP's {which}" if call.module in (None, 1) else f"the {which} of DDP module {call.module}"


def several(texts: Sequence[str]) -> str:
    """The call, or how many, and of what kinds."""
    return name_of(texts[0]) if len(texts) == 1 else f"{len(texts)} calls ({_kinds(texts)})"


def _kinds(texts: Sequence[str]) -> str:
    counts = Counter(texts)
    words = [
        name_of(text) if n == 1 else f"{n} times {name_of(text)}" for text, n in list(counts.items())[:_MOST_KINDS]
    ]
    more = len(counts) - len(words)
    return listing([*words, f"{more} other{'s' * (more > 1)}" if more else ""])


def replaced(gone: str, come: str, than: str) -> str:
    """That one call stands in the place of another, with what differs; for who does that, see `change_words`."""
    was, now = _parsed(gone), _parsed(come)
    if was.op != now.op:
        return f"{{Who}} call{{s}} {name_of(come)}, where {than} has {name_of(gone)}"
    changed = [(words(was), words(now)) for words in _WORDS if words(was) != words(now)]
    if len(changed) == 1 and now.bucket is not None and _tensors(was) != _tensors(now):
        sizes = _bytes(was) or 0, _bytes(now) or 0
        if sizes[0] != sizes[1]:
            grew = "grew" if sizes[1] > sizes[0] else "shrank"
            return f"{{who}}{_bucket(now)} {grew} from {_size(was)} to {_size(now)}"
    if not changed:
        return f"{{Who}} call{{s}} {come}, where {than} has {gone}"
    old, new = (" ".join(words) for words in zip(*changed, strict=True))
    return f"{{Who}} call{{s}} {now.op} {new}, where {than} has it {old}"


def _tensors(call: CallPattern) -> str:
    size = _size(call)
    text = render_tensors(call.tensors or ())
    return f"with {text}{f' ({size})' if size else ''}" if text else "without a tensor"


def _or(value: object, said: str, nothing: str) -> str:
    return nothing if value is None else f"{said}{value}"


_WORDS: tuple[Callable[[CallPattern], str], ...] = (
    lambda call: _or(call.reduce_op, "with ", "without a reduction"),
    _tensors,
    lambda call: _or(call.split and list(call.split), "split ", "split evenly"),
    lambda call: "from any rank" if call.from_any else _or(call.source, "from rank ", "from no rank"),
    lambda call: _or(call.destination, "to rank ", "to no rank"),
    lambda call: _or(call.tag, "with tag ", "without a tag"),
    lambda call: _or(call.group, "in group ", "in the default group"),
    lambda call: "with a handle to wait for" if call.hands_out else "without a handle",
    lambda call: f"for {_bucket(call)}" if call.bucket is not None else "for no bucket of DDP",
    lambda call: _or(call.phase, "during ", "outside of any phase"),
)
"""What a call says, part by part."""
