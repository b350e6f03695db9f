"""Bring the ranks of a run together: their clocks, and which groups of different ranks are the same one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any

from lab.record.events import Clock
from lab.record.layout import MOST_RANKS
from lab.record.read import Record
from lab.trace.model import SHARED_CLOCK_ERROR_S, Call, Clocks, Group, Mark, Reading, Trace, number, whole

_DRIFT = 1e-4
"""Quartz clocks are within 50 µs a second of the truth, each of two."""


def align(starts: Mapping[int, Mapping[str, Any]], record: Record) -> Clocks:
    """The clocks of ranks, from the first lines of their traces.

    Ranks that share a clock share its error too; one of them tells the time of day for all, where it has no other.
    """
    if not starts:
        return Clocks()
    events = [*record.events()]
    told = [event for event in events if isinstance(event, Clock)]
    over = max((event.time for event in events), default=0.0)
    nodes, names = record.ranks(), {rank: str(start.get("boot", rank)) for rank, start in starts.items()}
    known: dict[str, tuple[Reading, float]] = {}
    for rank, start in starts.items():
        if names[rank] not in known:
            ours = [one for one in told if one.boot == names[rank] and one.monotonic_s]
            last = next((one for one in reversed(told) if one.node == nodes.get(rank)), None)
            known[names[rank]] = _line(ours, start, over) if ours else _by_the_day(start, last)
    origin = min(known[names[rank]][0].nanoseconds(number(start, "t")) for rank, start in starts.items())
    readings = {name: reading._replace(offset=reading.offset - origin) for name, (reading, _) in known.items()}
    errors = {rank: known[name][1] for rank, name in names.items()}
    return Clocks({rank: readings[name] for rank, name in names.items()}, origin / 1e9, names, errors)


def _by_the_day(start: Mapping[str, Any], clock: Clock | None) -> tuple[Reading, float]:
    """By the time of day that a rank told when its trace began, and how far that is off on its node."""
    offset_s, error_s = (clock.offset_s, clock.error_s) if clock is not None else (0.0, 0.0)
    offset = number(start, "wall") - number(start, "t") - int(offset_s * 1e9)
    within_s = number(start, "within") / 1e9 if "within" in start else SHARED_CLOCK_ERROR_S
    return Reading(offset), error_s + max(SHARED_CLOCK_ERROR_S, within_s)


def _line(told: Sequence[Clock], start: Mapping[str, Any], over: float) -> tuple[Reading, float]:
    """By exchanges: the best of them, or the line from the best of the begin to the best of the end."""
    best = min(told, key=lambda one: one.error_s)
    offset = _offset(best)
    began = (number(start, "t") + offset) / 1e9
    over = max(over, began)
    choices = [(Reading(offset), best.error_s + _DRIFT * max(abs(best.time - began), abs(over - best.time)))]
    middle = (min(one.time for one in told) + max(one.time for one in told)) / 2
    first, last = ([one for one in told if (one.time > middle) == late] for late in (False, True))
    if first and last:
        one, other = (min(some, key=lambda clock: clock.error_s) for some in (first, last))
        shown = round((other.monotonic_s - one.monotonic_s) * 1e9)
        drift = (_offset(other) - _offset(one)) / shown if shown > 0 else 0.0
        beyond_s = max(0.0, one.time - began, over - other.time)
        error_s = max(one.error_s, other.error_s) + 2 * _DRIFT * beyond_s
        if abs(drift) <= _DRIFT:
            choices.append((Reading(_offset(one), drift, round(one.monotonic_s * 1e9)), error_s))
    reading, error_s = min(choices, key=lambda choice: choice[1])
    return reading, error_s + SHARED_CLOCK_ERROR_S


def _offset(clock: Clock) -> int:
    """Nanoseconds to be added to its monotonic clock to have the lab's Unix time."""
    return round((clock.time - clock.monotonic_s) * 1e9)


@dataclass(eq=False)
class _World:
    """A default group whose members tell which rank they have in it."""

    size: int
    members: dict[int, int] = field(default_factory=dict)
    """PyTorch's rank -> rank of the run, of those who have been heard."""
    settled: bool = False
    marks: list[Mark] = field(default_factory=list)
    """Those with members, until it is settled."""

    def differs(self) -> bool:
        """Whether any rank in it is another one in the run, as far as is known."""
        return any(rank != known for rank, known in self.members.items())

    def ranks(self, told: Iterable[int]) -> tuple[int, ...]:
        """Ranks of the run, from PyTorch's."""
        return tuple(self.members.get(rank, rank) for rank in told)


class Worlds:
    """The groups of a trace, as all readers of it have heard of them."""

    def __init__(self, trace: Trace) -> None:
        self.changed = False
        """Whether calls that were read before have been brought to other ranks; who looks sets it back."""
        self.ranks: dict[str, tuple[int, ...]] = {}
        """By name of a group: PyTorch's ranks of its members, as the first of them to be heard has it."""
        self._trace = trace
        self._world_of: dict[str, _World] = {}
        """By name of a group: the one that it is in, where that is known."""
        self._calls: list[Callable[[], Iterable[Call]]] = []

    def of(self, rank: int, calls: Callable[[], Iterable[Call]]) -> OwnGroups:
        """Those of one rank, whose calls so far are told when they are asked for."""
        self._calls.append(calls)
        return OwnGroups(rank, self._trace, self)

    def fits(self, name: str, ranks: tuple[int, ...], world: _World | None, own: int | None) -> bool:
        """Whether a group of that name is, or can become, the one that a rank tells of.

        `own` is the rank that it has in it, where it is a default group that tells.
        """
        known = self._world_of.get(name)
        if known is None or self.ranks[name] != ranks:
            return self.ranks.get(name, ranks) == ranks
        return own not in known.members if own is not None else world is None or world is known

    def add(self, group: Group, world: _World | None) -> None:
        """Take in a group that nobody has told of before; its ranks are PyTorch's."""
        self.ranks[group.name] = group.ranks
        if world is not None:
            self._world_of[group.name] = world
            group = replace(group, ranks=world.ranks(group.ranks)) if world.settled else group
        self._trace.groups[group.name] = group

    def enter(self, name: str, rank: int, own: int) -> _World:
        """The world of a default group, in which a rank of the run has one of PyTorch's."""
        world = self._world_of.setdefault(name, _World(len(self.ranks[name])))
        world.members[own] = rank
        if len(world.members) == world.size:
            self._settle(world)
        return world

    def finish(self, ranks: Iterable[int]) -> None:
        """All that there is was read: settle worlds of which not all members have been heard.

        Who is missing there is taken to be one of the run's ranks that were heard in no world, the lowest first.
        """
        worlds = dict.fromkeys(self._world_of.values())
        heard = {rank for world in worlds for rank in world.members.values()}
        others = sorted(ranks, key=lambda rank: (rank in heard, rank))
        for world in worlds:
            if not world.settled and world.differs():
                taken = set(world.members.values())
                left = (rank for rank in chain(others, count(len(others))) if rank not in taken)
                for missing in (rank for rank in range(world.size) if rank not in world.members):
                    world.members[missing] = next(left)
                self._settle(world)

    def _settle(self, world: _World) -> None:
        world.settled = True
        marks, world.marks = world.marks, []
        if not world.differs():
            return
        names = {name for name, of in self._world_of.items() if of is world}
        for name in names:
            self._trace.groups[name] = replace(self._trace.groups[name], ranks=world.ranks(self.ranks[name]))
        for mark in marks:
            mark.members = world.ranks(mark.members)
        for call in chain.from_iterable(calls() for calls in self._calls):
            if call.group in names:
                call.root = call.root if call.root is None else world.members.get(call.root, call.root)
                call.peer = call.peer if call.peer is None else world.members.get(call.peer, call.peer)
        self.changed = True


class OwnGroups:
    """The groups of one rank, in the order in which it tells of them."""

    def __init__(self, rank: int, trace: Trace, worlds: Worlds) -> None:
        self._rank = rank
        self._trace = trace
        self._worlds = worlds
        self._world: _World | None = None
        """The one that it is in now, where it told of that."""
        self._names: dict[str, list[str]] = {}
        """PyTorch's name of a group -> the names here of the groups that this rank had under it, the latest last."""

    def take(self, line: Mapping[str, Any], source: str) -> None:
        """Take a `group` line."""
        ranks = tuple(whole(rank, MOST_RANKS) for rank in line["ranks"])
        if not ranks:
            raise ValueError(ranks)
        own = whole(line["rank"], len(ranks)) if "rank" in line else None
        name = self._new_name(str(line["g"]), ranks, own)
        if name not in self._worlds.ranks:
            group = Group(name, ranks, str(line.get("backend", "")), str(line.get("desc", "")), source)
            self._worlds.add(group, None if own is not None else self._world)
        if own is not None:
            self._world = self._worlds.enter(name, self._rank, own)

    def _new_name(self, plain: str, ranks: tuple[int, ...], own: int | None) -> str:
        """PyTorch gives a name again after destroy_process_group: the second group of that name is another group.

        All members have to come to the same name for it, also those that were not in the first one. Of worlds that are
        all alike, a rank is in the first in which nobody has its rank.
        """
        mine = self._names.setdefault(plain, [])
        names = (plain if number == 1 else f"{plain}'{number}" for number in count(1))
        name = next(name for name in names if name not in mine and self._worlds.fits(name, ranks, self._world, own))
        mine.append(name)
        return name

    def name(self, plain: str) -> str:
        """The name here of the group that has PyTorch's name for this rank now."""
        return self._names[plain][-1] if plain in self._names else plain

    def global_rank(self, group: str, rank: Any) -> int | None:
        """Who has that rank in a group."""
        if not isinstance(rank, int) or not 0 <= rank < MOST_RANKS:
            return None
        known = self._trace.groups.get(group)
        return known.ranks[rank] if known is not None and rank < len(known.ranks) else rank

    def tell_members(self, mark: Mark, ranks: Iterable[Any]) -> None:
        """Tell a mark who is to be in the group that it makes."""
        mark.members, world = tuple(whole(rank, MOST_RANKS) for rank in ranks), self._world
        if world is not None and world.settled:
            mark.members = world.ranks(mark.members)
        elif world is not None:
            world.marks.append(mark)
