"""The calls of all ranks put together: one step for each collective, one for each message."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar

from lab.operations import MESSAGE, Operation, Who, get_operation
from lab.trace.model import Call, Group, Trace

Path = Sequence[tuple[Call, int]]
"""The calls of one rank in the order in which it made them, each with the number of its step, from 0."""


def depths(paths: Sequence[Path], steps: int) -> list[int]:
    """Of each step, how many steps had to come before it, one after the other.

    A rank comes to a message with all that it had called before and that was over by then, to a collective with all
    that it had called before; times are compared for messages only, and each rank's with its own. So messages that are
    under way at once do not follow each other, whoever begins first. Where that leads around in a circle, a rank is
    taken not to have waited for what it had only begun; where even that does not help, as in a damaged trace, the step
    comes first to which a rank came first.
    """
    graph = _Graph(steps)
    for path in paths:
        graph.add_path(path)
    return graph.depths(paths)


class _Graph:
    """Steps, and joints, which stand for several."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._after: list[list[int]] = [[] for _ in range(steps)]
        """What follows each; `~node` where it follows what had only begun."""
        self._over = [0] * steps
        """How many have to be over before each."""
        self._begun = [0] * steps
        """How many have to have begun before each."""

    def add(self, before: int, after: int, *, waited: bool = True) -> None:
        """One comes before the other; if it was waited for, it was over by then. Before -1 there is nothing."""
        if before < 0:
            return
        self._after[before].append(after if waited else ~after)
        (self._over if waited else self._begun)[after] += 1

    def join(self, behind: int, *, over: Iterable[int] = (), begun: Iterable[int] = ()) -> int:
        """A joint of all of these."""
        joint = len(self._after)
        self._after.append([])
        self._over.append(0)
        self._begun.append(0)
        for step in (behind, *over):
            self.add(step, joint)
        for step in begun:
            self.add(step, joint, waited=False)
        return joint

    def add_path(self, path: Path) -> None:
        """Everything that a rank's own calls say about what came before what."""
        behind = begun = -1  # what stands for all that is over; the last collective, where it had only begun
        last: dict[str, int] = {}  # by group: its last collective
        since: list[int] = []  # messages since the last collective
        under_way: list[tuple[float, int, int]] = []  # ends and steps of messages, and what was behind them
        for call, step in path:
            over = []
            while under_way and under_way[0][0] <= call.begin:
                over.append(heappop(under_way))
            if len(over) == 1 and over[0][2] == behind:
                behind = over[0][1]
            elif over:
                behind = self.join(behind, over=[message for _, message, _ in over])
            self.add(behind, step)
            self.add(begun, step, waited=False)
            if call.seq is None:
                since.append(step)
                heappush(under_way, (math.inf if call.end is None else call.end, step, behind))
                continue
            if begun >= 0:
                self.add(last.get(call.group, -1), step)
            if since and under_way:
                self.add(self.join(behind, begun=since), step)
            under_way = [message for message in under_way if message[0] < math.inf]
            since, last[call.group] = [], step
            behind, begun = (behind, step) if call.asynchronous else (step, -1)

    def depths(self, paths: Sequence[Path]) -> list[int]:
        """The length of the longest way to each step."""
        nodes = range(len(self._after))
        depth, left = [0] * len(nodes), set(nodes)
        ready = [node for node in nodes if not self._over[node] + self._begun[node]]
        # Joints first: most circles go through messages that are under way for long.
        only_begun = [(node < self._steps, 0, node) for node in nodes if self._begun[node] and not self._over[node]]
        heapify(only_begun)
        # All steps, in the order of when in its own calls a rank came to them first.
        turns = sorted((turn, rank, step) for rank, path in enumerate(paths) for turn, (_, step) in enumerate(path))
        called = (step for _, _, step in turns)
        while left:
            while ready:
                node = ready.pop()
                left.remove(node)
                for link in self._after[node]:
                    after, missing = (link, self._over) if link >= 0 else (~link, self._begun)
                    if after not in left:
                        continue
                    depth[after] = max(depth[after], depth[node] + (after < self._steps))
                    missing[after] -= 1
                    if not self._over[after] and not self._begun[after]:
                        ready.append(after)
                    elif not self._over[after] and link >= 0:
                        heappush(only_begun, (after < self._steps, depth[after], after))
            while only_begun and only_begun[0][2] not in left:
                heappop(only_begun)
            if only_begun:
                ready.append(heappop(only_begun)[2])
            elif left:
                ready.append(next(step for step in called if step in left))
        return depth[: self._steps]


T = TypeVar("T")


@dataclass(slots=True)
class Step:
    """One collective with the calls of its ranks, or one message with its send and its receive."""

    number: int
    """From 1, in the order in which steps came about, over all groups."""
    group: Group
    seq: int | None
    """Number of the collective within its group; None for a message."""
    calls: dict[int, Call] = field(default_factory=dict)
    """By rank: everybody who entered. A message a rank sends to itself has its send only."""
    expected: tuple[int, ...] = ()
    """Ranks that ought to take part."""
    round: int | None = None
    """Of a message where several ranks send at once: number of the round since the last collective, from 1."""
    apart_s: float = 0.0
    """How wrong it may be which of its ranks was first, and by how much; 0 where all have the same clock."""
    _remembered: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def remembered(self, what: Hashable, find: Callable[[], T]) -> T:
        """What follows from how its calls were entered, found out once for all ranks: they may be hundreds."""
        key = what, len(self.calls)  # while the run goes on, more may come
        if key not in self._remembered:
            self._remembered[key] = find()
        return self._remembered[key]  # type: ignore[no-any-return]

    @property
    def op(self) -> str:
        """What most ranks called; a message is called as its send."""
        return MESSAGE if self.seq is None else self.remembered("op", self._op)

    def _op(self) -> str:
        names = [call.op for call in self.calls.values()]
        return max(sorted(set(names)), key=names.count)

    @property
    def operation(self) -> Operation:
        """What there is to know of it."""
        return get_operation(self.op)

    @property
    def message(self) -> bool:
        """Whether it is point to point."""
        return self.seq is None

    @property
    def missing(self) -> tuple[int, ...]:
        """Ranks that never entered."""
        return self.remembered("missing", lambda: tuple(rank for rank in self.expected if rank not in self.calls))

    @property
    def begin(self) -> float:
        """When the first rank entered."""
        return min(call.begin for call in self.calls.values())

    @property
    def ready(self) -> float | None:
        """When the last rank entered, before which not all data can have flowed; None if somebody never did."""
        return None if self.missing else max(call.begin for call in self.calls.values())

    @property
    def end(self) -> float | None:
        """When the last rank was done; None if somebody never was."""
        ends = [call.end for call in self.calls.values() if call.end is not None]
        return None if self.missing or len(ends) < len(self.calls) else max(ends)

    @property
    def last(self) -> int | None:
        """The rank that entered last; None if somebody never did, or if clocks do not tell who it was."""
        call = None if self.missing else self._surely_last(self.calls.values())
        return None if call is None else call.rank

    @property
    def source(self) -> int | None:
        """Global rank that the data comes from, where that is one rank."""
        return next((rank for call in self.calls.values() if (rank := call.giver) is not None), None)

    @property
    def destination(self) -> int | None:
        """Global rank that the data goes to, where that is one rank."""
        return next((rank for call in self.calls.values() if (rank := call.taker) is not None), None)

    @property
    def state(self) -> str:
        """`completed`, `failed` (on some rank), `unfinished` (some rank never came or was never done)."""
        states = {call.state for call in self.calls.values()}
        if "failed" in states:
            return "failed"
        return "unfinished" if self.missing or "unfinished" in states else "completed"

    def needs(self, call: Call) -> tuple[int, ...]:
        """The other ranks that have to enter before a call can go on: the rule of who is waited for.

        Nobody, for who only gives; for who gets from one rank, that one; for all others, everybody.
        """
        op = call.operation if self.message else self.operation
        if op.sends or (op.taker is Who.ROOT and call.rank != call.root):
            return ()
        ranks = self.group.ranks if call.giver is None else (call.giver,)
        return tuple(rank for rank in ranks if rank != call.rank)

    def lacks(self, call: Call) -> tuple[int, ...]:
        """The ranks without which a call cannot end now.

        Where all whom it needs have come, a backend may still wait for the rest. Whose call failed is not there.
        """
        absent = tuple(rank for rank in self.needs(call) if rank not in self.calls or self.calls[rank].error)
        return absent or self.missing

    def latest_of(self, call: Call) -> Call | None:
        """Of a call and those it needs, the last to be entered; None where one of them never was.

        Where clocks do not tell that it was another one, it is the call itself.
        """
        needed = self.needs(call)
        if len(needed) == len(self.group.ranks) - 1 and self.calls.keys() >= {call.rank, *needed[:1]}:
            latest = self.remembered("last of the group", self._last_of_group)
        elif self.calls.keys() >= set(needed):
            latest = max((call, *(self.calls[rank] for rank in needed)), key=attrgetter("begin"))
        else:
            latest = None
        return call if latest is not None and latest.begin - call.begin <= self.apart_s else latest

    def _last_of_group(self) -> Call | None:
        """The last of all members of the group to be entered; None where one of them never was."""
        entered = [self.calls.get(rank) for rank in self.group.ranks]
        return None if None in entered else max((call for call in entered if call), key=attrgetter("begin"))

    def awaited(self, call: Call) -> Call | None:
        """The call that this one waited for; None where it waited for nobody, or for who never came."""
        latest = self.latest_of(call)
        return None if latest is call else latest

    @property
    def late(self) -> Call | None:
        """The last to be entered of all calls that any other needed; None where clocks do not tell it."""
        return self._surely_last(self._needed)

    @property
    def _needed(self) -> list[Call]:
        """All calls that any other needed; none where one of them never was entered."""
        needed = set(self.expected)
        if not self.operation.synchronises:
            needed = {rank for call in self.calls.values() for rank in self.needs(call)} or needed
        return [self.calls[rank] for rank in needed] if needed <= self.calls.keys() else []

    def _surely_last(self, calls: Collection[Call]) -> Call | None:
        last = max(calls, key=attrgetter("begin"), default=None)
        if last is None or not self.apart_s:
            return last
        return None if any(last.begin - one.begin <= self.apart_s for one in calls if one is not last) else last

    @property
    def waited(self) -> dict[int, float]:
        """Seconds that each rank was inside before everybody it needed had entered; not of ranks that still wait."""
        same = self.operation.synchronises
        shared = max(self._needed, key=attrgetter("begin"), default=None) if same else None
        waited = {}
        for rank, call in self.calls.items():
            latest = shared if same else self.latest_of(call)
            if latest is not None:
                until = latest.begin if call.end is None else min(latest.begin, call.end)
                waited[rank] = max(0.0, until - call.begin) if latest.begin - call.begin > self.apart_s else 0.0
        return waited

    @property
    def title(self) -> str:
        """How a person would call it: `all_reduce #3`, `all_reduce #1 in [0, 1]`, `send 0 → 1 tag 7`."""
        where = "" if self.group.label == "default" else f" in {self.group.title}"
        if self.message:
            ends = [("?" if end is None else str(end)) for end in (self.source, self.destination)]
            tags = sorted({call.tag for call in self.calls.values() if call.tag})
            return f"{self.op} {ends[0]} → {ends[1]}{f' tag {tags[0]}' if tags else ''}{where}"
        return f"{self.op} #{self.seq}{where}"


def match(trace: Trace) -> list[Step]:
    """Every collective and every message of a run, in the order in which they came about.

    Collectives of a group are the same one where their numbers are; the n-th send from one rank to another with a tag
    is the n-th receive there. A step follows those that its ranks had to have behind them, see `lab.trace.steps`; of
    steps that are equally far, collectives come before messages, and of these the first of every rank, then the second.
    Clocks of different ranks are not compared, so the order is the same in every run that does the same.
    """
    steps = [*_collectives(trace), *_messages(trace)]
    if len({step.group.name for step in steps}) == 1 and not any(step.message for step in steps):
        steps.sort(key=attrgetter("seq"))  # most runs are that simple
    else:
        steps = _in_order(steps, trace)
    several = trace.clocks.several
    for number, step in enumerate(steps, start=1):
        step.number, step.apart_s = number, trace.clocks.apart_s(step.calls) if several else 0.0
    return steps


def _in_order(steps: Sequence[Step], trace: Trace) -> list[Step]:
    number_of = {id(call): number for number, step in enumerate(steps) for call in step.calls.values()}
    paths = [
        [(call, number_of[id(call)]) for call in rank.calls if id(call) in number_of] for rank in trace.ranks.values()
    ]
    depth = depths(paths, len(steps))
    firsts = [next(iter(step.calls.values())) for step in steps]
    # Of each step its depth, of a message also which of its sender's it is there, then rank and call that begin it.
    places = [(depth[i], 0, first.rank, first.index) for i, first in enumerate(firsts)]
    sent: Counter[tuple[int, int]] = Counter()
    for i in sorted((i for i, step in enumerate(steps) if step.message), key=places.__getitem__):
        at, _, rank, index = places[i]
        sent[at, rank] += 1
        places[i] = (at, sent[at, rank], rank, index)
    order = sorted(range(len(steps)), key=places.__getitem__)
    # Rounds of messages between two collectives count where in any of them several ranks send at once.
    for message, stretch in groupby(order, key=lambda i: steps[i].message):
        rounds = [[*same] for _, same in groupby(stretch, key=lambda i: places[i][:2])] if message else []
        if max(map(len, rounds), default=0) > 1:
            for number, same in enumerate(rounds, start=1):
                for i in same:
                    steps[i].round = number
    return [steps[i] for i in order]


def _group(trace: Trace, name: str, calls: Iterable[Call]) -> Group:
    return trace.groups.get(name) or Group(name=name, ranks=tuple(sorted({call.rank for call in calls})))


def _collectives(trace: Trace) -> list[Step]:
    calls_of: dict[tuple[str, int], list[Call]] = defaultdict(list)
    for call in (call for rank in trace.ranks.values() for call in rank.calls):
        if call.seq is not None:
            calls_of[call.group, call.seq].append(call)
    steps = []
    for (name, seq), calls in calls_of.items():
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
    """The message between two ranks, with its send and its receive as far as they are on record."""
    expected = dict.fromkeys(rank for rank in ends if rank is not None)
    step = Step(0, _group(trace, calls[-1].group, calls[-1:]), None, {}, tuple(expected))
    for call in calls:
        step.calls.setdefault(call.rank, call)
    return step
