"""Match the calls of all ranks into steps: one step for each collective and one for each message."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar

from lab.operations import MESSAGE, Operation, Who, get_operation
from lab.trace.model import Call, Group, Trace
from lab.words import group_pairs

Path = Sequence[tuple[Call, int]]
"""The calls of one rank in program order, each with the number of its step, from 0."""


def compute_depths(paths: Sequence[Path], steps: int) -> list[int]:
    """Return for each step the length of the longest chain of steps that had to come before it.

    A message depends on all earlier calls of the rank that had ended by then. A collective depends on all earlier calls
    of the rank. Times are compared for messages only, and only within one rank. So messages in flight at the same time
    do not depend on each other, no matter which began first.

    If this leads to a cycle, ignore the dependency on calls that had only begun. If a cycle remains, as in a damaged
    trace, ignore that the shortest chain is incomplete.
    """
    replay = _Replay(paths, steps)
    replay.run(paths)
    return replay.depths


_Need = tuple[int, int, int]
"""Why a rank waits, the length of its chain so far, and the step that it waits for."""
_MESSAGES, _BEGUN, _ENDED = range(3)
"""Reasons to wait, in the order in which ranks give up if all of them wait: most cycles go through messages that are in
flight for a long time."""


class _Replay:
    """Replays the calls of all ranks: each one continues once the steps are complete that its next call depends on."""

    def __init__(self, paths: Sequence[Path], steps: int) -> None:
        self.depths = [0] * steps
        self._absent = Counter(step for path in paths for _, step in path)
        """By step: how many of its calls no rank has reached yet."""

    def run(self, paths: Sequence[Path]) -> None:
        """Let every rank reach its last call."""
        ranks = [self._follow(path) for path in paths]
        waiting: dict[int, _Need] = {}
        ready = [*range(len(ranks))]
        while ready:
            for rank in ready:
                waiting.pop(rank, None)
                if (need := next(ranks[rank], None)) is not None:
                    waiting[rank] = need
            ready = [rank for rank, (_, _, step) in waiting.items() if not self._absent[step]]
            if waiting and not ready:
                rank = min(waiting, key=lambda rank: (waiting[rank], rank))
                if waiting[rank][0] == _ENDED:
                    self._absent[waiting[rank][2]] = 0
                ready = [rank]

    def _follow(self, path: Path) -> Iterator[_Need]:
        """Reach the calls of one rank, and yield what it waits for."""
        depth, begun = 0, -1  # the chain of all that has ended; the last collective if it had only begun
        last: dict[str, int] = {}  # by group: its last collective
        since: list[int] = []  # messages since the last collective
        under_way: list[tuple[float, int]] = []  # end and step of each message
        ended: list[int] = []
        for call, step in path:
            while under_way and under_way[0][0] <= call.begin:
                ended.append(heappop(under_way)[1])
            if call.seq is not None and begun >= 0 and call.group in last:
                ended.append(last[call.group])
            for one in ended:
                if self._absent[one]:
                    yield _ENDED, depth, one
                depth = max(depth, self.depths[one] + 1)
            early = [(_MESSAGES, one) for one in since if call.seq is not None] + [(_BEGUN, begun)] * (begun >= 0)
            for why, one in early:
                if self._absent[one]:
                    yield why, depth, one
            known = (self.depths[one] + 1 for _, one in early if not self._absent[one])
            self._reach(step, max(depth, *known, 0))
            ended = []
            if call.seq is None:
                since.append(step)
                heappush(under_way, (math.inf if call.end is None else call.end, step))
            else:
                since, last[call.group] = [], step
                ended, begun = ([], step) if call.asynchronous else ([step], -1)

    def _reach(self, step: int, depth: int) -> None:
        if self._absent[step]:
            self._absent[step] -= 1
            self.depths[step] = max(self.depths[step], depth)


T = TypeVar("T")


@dataclass(slots=True)
class Step:
    """One collective with the calls of its ranks, or one message with its send and its receive."""

    number: int
    """Number over all groups, from 1, in the order of steps."""
    group: Group
    seq: int | None
    """Number of the collective within its group; None for a message."""
    calls: dict[int, Call] = field(default_factory=dict)
    """By rank: its call. A message that a rank sends to itself contains only the send."""
    expected: tuple[int, ...] = ()
    """Ranks that should take part."""
    round: int | None = None
    """For a message in a phase where several ranks send at once: number of the round since the last collective, from
    1."""
    uncertainty_s: float = 0.0
    """Largest error in seconds when you compare times of its ranks; 0 if all share a clock."""
    _cache: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def cached(self, what: Hashable, find: Callable[[], T]) -> T:
        """Compute a value once for all ranks of the step; there can be hundreds."""
        key = what, len(self.calls)  # more calls can arrive during the run
        if key not in self._cache:
            self._cache[key] = find()
        return self._cache[key]  # type: ignore[no-any-return]

    @property
    def op(self) -> str:
        """The operation that most ranks called; a message has the operation of its send."""
        return MESSAGE if self.seq is None else self.cached("op", self._op)

    def _op(self) -> str:
        names = [call.op for call in self.calls.values()]
        return max(sorted(set(names)), key=names.count)

    @property
    def operation(self) -> Operation:
        """The operation's row in the table of operations."""
        return get_operation(self.op)

    @property
    def message(self) -> bool:
        """Whether it is a point-to-point message."""
        return self.seq is None

    @property
    def missing(self) -> tuple[int, ...]:
        """Ranks that never entered."""
        return self.cached("missing", lambda: tuple(rank for rank in self.expected if rank not in self.calls))

    @property
    def begin(self) -> float:
        """When the first rank entered."""
        return min(call.begin for call in self.calls.values())

    @property
    def ready(self) -> float | None:
        """When the last rank entered. Before that, not all data can have moved. None if a rank never entered."""
        return None if self.missing else max(call.begin for call in self.calls.values())

    @property
    def end(self) -> float | None:
        """When the last rank ended its call; None if a rank never did."""
        ends = [call.end for call in self.calls.values() if call.end is not None]
        return None if self.missing or len(ends) < len(self.calls) else max(ends)

    @property
    def last(self) -> int | None:
        """The rank that entered last; None if a rank never entered, or if the clocks are too inexact to tell."""
        call = None if self.missing else self._certain_last(self.calls.values())
        return None if call is None else call.rank

    @property
    def source(self) -> int | None:
        """Global rank that the data comes from, if it is a single rank."""
        return next((rank for call in self.calls.values() if (rank := call.giver) is not None), None)

    @property
    def destination(self) -> int | None:
        """Global rank that the data goes to, if it is a single rank."""
        return next((rank for call in self.calls.values() if (rank := call.taker) is not None), None)

    @property
    def state(self) -> str:
        """`completed`, `failed` (on a rank), or `unfinished` (a rank never entered or never ended)."""
        states = {call.state for call in self.calls.values()}
        if "failed" in states:
            return "failed"
        return "unfinished" if self.missing or "unfinished" in states else "completed"

    def needs(self, call: Call) -> tuple[int, ...]:
        """Return the other ranks that must enter before a call can complete: the rule for who waits for whom.

        A call that only sends waits for nobody. A call that receives from one rank waits for that rank. All other calls
        wait for all ranks.
        """
        op = call.operation if self.message else self.operation
        if op.sends or (op.taker is Who.ROOT and call.rank != call.root):
            return ()
        ranks = self.group.ranks if call.giver is None else (call.giver,)
        return tuple(rank for rank in ranks if rank != call.rank)

    def lacks(self, call: Call) -> tuple[int, ...]:
        """Return the ranks that keep a call from ending now.

        If all ranks that it needs have entered, a backend may still wait for the others. A rank whose call failed
        counts as absent.
        """
        absent = tuple(rank for rank in self.needs(call) if rank not in self.calls or self.calls[rank].error)
        return absent or self.missing

    def latest_of(self, call: Call) -> Call | None:
        """Return the last to begin of a call and the calls that it needs; None if one of them is missing.

        If the clocks are too inexact to name another call, this is the call itself.
        """
        needed = self.needs(call)
        if len(needed) == len(self.group.ranks) - 1 and self.calls.keys() >= {call.rank, *needed[:1]}:
            latest = self.cached("last of the group", self._last_of_group)
        elif self.calls.keys() >= set(needed):
            latest = max((call, *(self.calls[rank] for rank in needed)), key=attrgetter("begin"))
        else:
            latest = None
        return call if latest is not None and latest.begin - call.begin <= self.uncertainty_s else latest

    def _last_of_group(self) -> Call | None:
        """Return the call of the group's member that entered last; None if a member never entered."""
        entered = [self.calls.get(rank) for rank in self.group.ranks]
        return None if None in entered else max((call for call in entered if call), key=attrgetter("begin"))

    def awaited(self, call: Call) -> Call | None:
        """Return the call that this one waited for; None if it waited for none, or for a rank that never entered."""
        latest = self.latest_of(call)
        return None if latest is call else latest

    @property
    def late(self) -> Call | None:
        """The last to begin of all calls that others needed; None if the clocks are too inexact to tell."""
        return self._certain_last(self._needed)

    @property
    def _needed(self) -> list[Call]:
        """All calls that others needed; empty if one of them is missing."""
        needed = set(self.expected)
        if not self.operation.synchronises:
            needed = {rank for call in self.calls.values() for rank in self.needs(call)} or needed
        return [self.calls[rank] for rank in needed] if needed <= self.calls.keys() else []

    def _certain_last(self, calls: Collection[Call]) -> Call | None:
        last = max(calls, key=attrgetter("begin"), default=None)
        if last is None or not self.uncertainty_s:
            return last
        return None if any(last.begin - one.begin <= self.uncertainty_s for one in calls if one is not last) else last

    @property
    def waited(self) -> dict[int, float]:
        """Seconds of each rank in its call before all ranks that it needed had entered.

        Ranks that still wait are missing.
        """
        same = self.operation.synchronises
        shared = max(self._needed, key=attrgetter("begin"), default=None) if same else None
        waited = {}
        for rank, call in self.calls.items():
            latest = shared if same else self.latest_of(call)
            if latest is not None:
                until = latest.begin if call.end is None else min(latest.begin, call.end)
                waited[rank] = max(0.0, until - call.begin) if latest.begin - call.begin > self.uncertainty_s else 0.0
        return waited

    @property
    def title(self) -> str:
        """Name for people: `all_reduce #3`, `all_reduce #1 in [0, 1]`, `send 0 → 1 tag 7`."""
        where = "" if self.group.label == "default" else f" in {self.group.title}"
        if self.message:
            ends = [("?" if end is None else str(end)) for end in (self.source, self.destination)]
            tags = sorted({call.tag for call in self.calls.values() if call.tag})
            return f"{self.op} {ends[0]} → {ends[1]}{f' tag {tags[0]}' if tags else ''}{where}"
        names = self.cached("names", lambda: "/".join(sorted({call.op for call in self.calls.values()})))
        return f"{names} #{self.seq}{where}"


def match_steps(trace: Trace) -> list[Step]:
    """Match the calls of a run into steps, in their order.

    Collectives of a group belong together if they have the same number. The n-th send from one rank to another with a
    tag belongs to the n-th receive there. A step follows the steps that its ranks had to complete before, see
    `compute_depths`. At equal depth, collectives come before messages. Among messages, the first of each sender comes
    first, then the second.

    Clocks of different ranks are not compared, so a program that does the same has the same order in every run.
    """
    steps = [*_collectives(trace), *_messages(trace)]
    if len({step.group.name for step in steps}) == 1 and not any(step.message for step in steps):
        steps.sort(key=attrgetter("seq"))  # the common case
    else:
        steps = _in_order(steps, trace)
    are_separate = trace.clocks.are_separate
    for number, step in enumerate(steps, start=1):
        step.number, step.uncertainty_s = number, trace.clocks.uncertainty_s(step.calls) if are_separate else 0.0
    return steps


def _in_order(steps: Sequence[Step], trace: Trace) -> list[Step]:
    number_of = {id(call): number for number, step in enumerate(steps) for call in step.calls.values()}
    paths = [[(it, number_of[id(it)]) for it in rank.calls if id(it) in number_of] for rank in trace.ranks.values()]
    depth = compute_depths(paths, len(steps))
    firsts = [next(iter(step.calls.values())) for step in steps]
    # Depth; for a message also its number among the sender's messages at that depth; rank and index of the first call.
    positions = [(depth[i], 0, first.rank, first.index) for i, first in enumerate(firsts)]
    sent: Counter[tuple[int, int]] = Counter()
    for i in sorted((i for i, step in enumerate(steps) if step.message), key=positions.__getitem__):
        at, _, rank, index = positions[i]
        sent[at, rank] += 1
        positions[i] = (at, sent[at, rank], rank, index)
    order = sorted(range(len(steps)), key=positions.__getitem__)
    # Number the rounds of messages between two collectives if several ranks send at once in any of them.
    for message, stretch in groupby(order, key=lambda i: steps[i].message):
        rounds = [[*same] for _, same in groupby(stretch, key=lambda i: positions[i][:2])] if message else []
        if max(map(len, rounds), default=0) > 1:
            for number, same in enumerate(rounds, start=1):
                for i in same:
                    steps[i].round = number
    return [steps[i] for i in order]


def _group(trace: Trace, name: str, calls: Iterable[Call]) -> Group:
    return trace.groups.get(name) or Group(name=name, ranks=tuple(sorted({call.rank for call in calls})))


def _collectives(trace: Trace) -> list[Step]:
    calls_in_order, steps = (call for rank in trace.ranks.values() for call in rank.calls), []
    numbered = (((call.group, call.seq), call) for call in calls_in_order if call.seq is not None)
    for (name, seq), calls in group_pairs(numbered).items():
        group = _group(trace, name, calls)
        steps.append(Step(0, group, seq, {call.rank: call for call in calls}, group.ranks))
    return steps


def _messages(trace: Trace) -> list[Step]:
    messages = [call for rank in trace.ranks.values() for call in rank.calls if call.seq is None]
    sends: dict[tuple[str, int | None, int | None, int], deque[Call]] = defaultdict(deque)
    for call in messages:
        if call.operation.sends:
            sends[call.group, call.rank, call.peer, call.tag].append(call)
    steps = []
    for call in messages:
        if not call.operation.sends:
            waiting = sends.get((call.group, call.peer, call.rank, call.tag))
            steps.append(_message(trace, (call.peer, call.rank), *([waiting.popleft()] if waiting else []), call))
    return steps + [_message(trace, (call.rank, call.peer), call) for queue in sends.values() for call in queue]


def _message(trace: Trace, ends: tuple[int | None, int | None], *calls: Call) -> Step:
    """Return the message between two ranks, with those of its send and receive that were recorded."""
    expected = dict.fromkeys(rank for rank in ends if rank is not None)
    step = Step(0, _group(trace, calls[-1].group, calls[-1:]), None, {}, tuple(expected))
    for call in calls:
        step.calls.setdefault(call.rank, call)
    return step
