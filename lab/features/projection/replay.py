"""Programs of ranks, and their replay: the actions of ranks with other times of work and calls, on shared cores."""

from __future__ import annotations

import heapq
import math
import random
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, count, pairwise
from statistics import median
from typing import NamedTuple

from lab.errors import LabError
from lab.features.stragglers.timing import Span
from lab.frozen import Frozen
from lab.operations import Who, get_operation
from lab.words import format_count


class Key(NamedTuple):
    """Which collective or message of a training step it is."""

    lane: str
    """The group, or sender, receiver, and tag of a message: transfers in one lane run one after the other."""
    number: int
    """From 0."""


class Work(NamedTuple):
    """Own work of a rank."""

    seconds: float
    """On a core of its own."""
    phase: str
    """The innermost phase around it; empty outside of phases."""
    idle_s: float = 0.0
    """Additional seconds in which it wanted no core: a device worked for it, or it slept."""

    @property
    def whole_s(self) -> float:
        """Its duration on a core of its own."""
        return self.seconds + self.idle_s

    def plus(self, other: Work) -> Work:
        """Return the sum."""
        return Work(self.seconds + other.seconds, self.phase, self.idle_s + other.idle_s)

    def times(self, factor: float) -> Work:
        """Return a multiple."""
        return Work(self.seconds * factor, self.phase, self.idle_s * factor)


class Begin(NamedTuple):
    """Make a call, and continue."""

    key: Key


class Wait(NamedTuple):
    """Continue when the call is over."""

    key: Key


Action = Work | Begin | Wait


class Transfer(NamedTuple):
    """A collective or a message of the program."""

    op: str
    ranks: tuple[int, ...]
    """The participants; for a message sender and receiver."""
    size: float
    """Bytes, as nccl-tests counts them."""
    group: str
    """Name of its group."""
    phase: str
    """The phase in which it is called."""
    root: int | None = None


_MOST_OTHERS = 64.0
_HALVINGS = 10


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that ranks share."""

    cores: float
    others: float = 0.0
    """Number of other programs that always want a core."""

    def rate(self, working: float) -> float:
        """Return the speed of each of `working` ranks; 1 if each has a core of its own."""
        wanting = working + self.others
        return min(1.0, self.cores / wanting) if working > 0 and wanting > 0 else 1.0


class Working(NamedTuple):
    """Spans in which something wanted cores."""

    spans: Sequence[Span]
    wanting: float = 1.0
    """Number of cores that each of them wanted, on average."""


class Clock:
    """A clock that runs as fast as concurrent work gets cores."""

    def __init__(self, working: Iterable[Working], machine: Machine | None) -> None:
        """Build the clock from all work; a machine of None means that cores are unknown."""
        spans = ((begin, end, one.wanting) for one in working for begin, end in one.spans if machine and end > begin)
        changes = sorted(edge for begin, end, wanting in spans for edge in ((begin, wanting), (end, -wanting)))
        self._times = [time for time, _ in changes]
        self._rates = [machine.rate(count) if machine else 1.0 for count in accumulate(change for _, change in changes)]
        stretches = zip(pairwise(self._times), self._rates, strict=False)
        self._elapsed = list(accumulate(((end - begin) * rate for (begin, end), rate in stretches), initial=0.0))

    def at(self, time: float) -> float:
        """Return the reading of the clock at a moment of the record."""
        if (index := bisect_right(self._times, time) - 1) < 0:
            return time - self._times[0] if self._times else time
        return self._elapsed[index] + (time - self._times[index]) * self._rates[index]

    def between(self, begin: float, end: float) -> float:
        """Return the seconds that passed on the clock."""
        return max(0.0, self.at(end) - self.at(begin))

    def of(self, spans: Iterable[Span]) -> float:
        """Return the seconds that passed on the clock in all spans together."""
        return sum(self.between(begin, end) for begin, end in spans)


def machine_of(working: Sequence[Working], cores: int, part: float) -> Machine:
    """Return the machine of this work, which ran for a share `part` of the time in which it wanted a core.

    If that share is less than their own number explains, other programs ran there too: as many as explain it.
    """
    wanted = sum(one.wanting * (end - begin) for one in working for begin, end in one.spans)
    low, high = 0.0, _MOST_OTHERS
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        clock = Clock(working, Machine(cores, middle))
        received = sum(one.wanting * clock.of(one.spans) for one in working)
        low, high = (middle, high) if received > part * wanted else (low, middle)
    return Machine(cores, low)


_STEPS = 24
"""At most this many training steps count in a replay; if fewer are recorded, each of them counts once."""
_FEWEST = 4
_ACTIONS = 100_000
"""With more actions than this, fewer steps are replayed, to limit the time."""
_SETTLED = 2
"""This many steps run first, because the first step has no predecessor to wait for."""
_SEED = 7


class Player(NamedTuple):
    """A replayed rank."""

    rank: int
    """The recorded rank."""
    copy: int
    """Number of the copy, from 0, among those that replay the same rank."""


class World(Frozen):
    """The input of a replay."""

    turns: Mapping[int, Sequence[Sequence[Action]]]
    """By recorded rank, its actions in each step."""
    transfers: Mapping[Key, Transfer]
    seconds: Mapping[Key, float]
    """Duration of each transfer when nothing else runs."""
    parts: Mapping[Key, Sequence[Mapping[int, float]]] = field(default_factory=dict)
    """By transfer, in each recorded step and for each rank: its duration relative to `seconds`."""
    spread: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """By operation, for transfers that are not recorded: relative durations to draw from."""
    at_once: int = 1
    """Collectives of one lane that a rank runs at once."""
    carrying: float = 1.0
    """Number of cores that a rank wants while data is in flight, if cores are shared."""
    copies: int = 1
    """Copies of each rank."""
    common: frozenset[str] = frozenset()
    """Lanes in which all copies take part in the same transfer; in other lanes each copy has its own."""
    weight: float = 1.0
    """Number of ranks that each player represents, if cores are shared."""
    machine: Machine | None = None
    """The machine that all ranks share; None: each has cores of its own."""


class Replayed(NamedTuple):
    """The result of a replay; seconds of one training step, mean of the ranks except for the first."""

    step_s: float
    """Median."""
    own_s: float
    """Own work, extended by the time for which it lacked a core."""
    exposed_s: float
    """Blocked by calls while its data was in flight."""
    waiting_s: float
    """Blocked by calls while no data was in flight: it waited for others."""
    hidden_s: float
    """Not blocked while its data was in flight."""


class _Move:
    """A transfer of one training step, in one copy of the ranks, or in all of them if its lane is common."""

    def __init__(self, world: World, step: int, copy: int, key: Key) -> None:
        self.step, self.key, self.transfer = step, key, world.transfers[key]
        self.lane = copy, key.lane
        copies = range(world.copies) if key.lane in world.common else (copy,)
        self.players = [Player(rank, one) for rank in self.transfer.ranks for one in copies]
        self.entered: set[Player] = set()
        self.left: set[Player] = set()
        """The players for which it is over."""

    def can_begin(self) -> bool:
        """Return whether data can flow: all players are there, or the sender is."""
        op = get_operation(self.transfer.op)
        if op.sends or op.receives or op.giver is Who.ROOT:
            giver = self.transfer.root if op.giver is Who.ROOT else self.transfer.ranks[0]
            return any(player.rank == giver for player in self.entered)
        return len(self.entered) == len(self.players)

    def releases(self, player: Player) -> bool:
        """Return whether a waiting player may continue: a pure sender does not wait for the receiver."""
        is_giver = get_operation(self.transfer.op).taker is Who.ROOT and player.rank != self.transfer.root
        return is_giver or player in self.left


@dataclass(slots=True)
class _State:
    """The state of a player."""

    life: Iterator[None]
    """Its actions; it stops where it works, and where it waits."""
    step: int = 0
    ends: list[float] = field(default_factory=list)
    moves: int = 0
    """Transfers in flight."""
    held: _Move | None = None
    """The transfer that it waits for."""
    since: float = 0.0
    """Time of the last change of the two above."""


def replay_world(world: World) -> Replayed:
    """Replay the training steps of a world; every replay gives the same result.

    Raises:
        LabError: The replay cannot continue: a rank waits for a transfer that no rank begins.
    """
    return _Replay(world).run()


class _Replay:
    """The state of a replay. Jobs end at a reading of a clock that runs as fast as they get cores."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = random.Random(_SEED)
        actions = world.copies * sum(len(steps[0]) for steps in world.turns.values())
        recorded = len(next(iter(world.turns.values())))
        self.steps = _SETTLED + max(_FEWEST, min(_STEPS, recorded, _ACTIONS // max(1, actions)))
        self.orders = []
        """The recorded step to replay, by copy and step; the first copy keeps the recorded order if steps are few."""
        for copy in range(world.copies):
            order = list(range(recorded))
            if copy or recorded > self.steps - _SETTLED:
                self.random.shuffle(order)
            self.orders.append([order[(step - _SETTLED) % recorded] for step in range(self.steps)])
        players = (Player(rank, copy) for rank in world.turns for copy in range(world.copies))
        self.states = {player: _State(self._live(player)) for player in players}
        self.moves: dict[tuple[int, int, Key], _Move] = {}
        """By training step, copy, and key."""
        self.lanes: dict[tuple[int, str], deque[_Move]] = defaultdict(deque)
        """Transfers that have not begun, by copy and lane."""
        self.in_flight: Counter[tuple[tuple[int, str], Player]] = Counter()
        """Number of transfers in flight, by lane and player."""
        self.jobs: list[tuple[float, int, float, Callable[[], object]]] = []
        self.pauses: list[tuple[float, int, Callable[[], object]]] = []
        """Jobs that want no core, with their end."""
        self.now = self.clock = self.weight = 0.0
        self.numbers = count()
        self.spent: dict[tuple[bool, bool], float] = defaultdict(float)
        """Seconds of all players in the steps that count, by whether a player was blocked and data was in flight."""

    def run(self) -> Replayed:
        for state in self.states.values():
            next(state.life)
        while self.jobs or self.pauses:
            self._advance()()
        states = self.states.values()
        if stuck := sum(state.step < self.steps for state in states):
            ranks = format_count(stuck, "rank")
            raise LabError(f"cannot replay the run: {ranks} would wait for calls that no rank makes")
        counted = range(_SETTLED, self.steps)
        durations = [median(state.ends[number] - state.ends[number - 1] for state in states) for number in counted]
        working, hidden, waiting, exposed = (
            self.spent[held, moving] / len(states) / len(counted) for held in (False, True) for moving in (False, True)
        )
        return Replayed(median(durations), working + hidden, exposed, waiting, hidden)

    def _advance(self) -> Callable[[], object]:
        """Advance the time to the end of the next job; return what to do then."""
        rate = 1.0 if self.world.machine is None else self.world.machine.rate(self.weight)
        ends = self.now + max(0.0, self.jobs[0][0] - self.clock) / rate if self.jobs else math.inf
        if self.pauses and self.pauses[0][0] <= ends:
            until, _, done = heapq.heappop(self.pauses)
            self.clock += (until - self.now) * rate
            self.now = until
            return done
        until, _, weight, done = heapq.heappop(self.jobs)
        self.now, self.clock = ends, max(self.clock, until)
        self.weight -= weight
        return done

    def _start_job(self, seconds: float, weight: float, done: Callable[[], object]) -> None:
        self.weight += weight
        heapq.heappush(self.jobs, (self.clock + seconds, next(self.numbers), weight, done))

    def _live(self, player: Player) -> Iterator[None]:
        """Run through all training steps."""
        state, world = self.states[player], self.world
        turns, order = world.turns[player.rank], self.orders[player.copy]
        for state.step in range(self.steps):
            for action in turns[order[state.step]]:
                if isinstance(action, Work):
                    if action.whole_s > 0:
                        go_on = partial(next, state.life, None)
                        work: Callable[[], object] = partial(self._start_job, action.seconds, world.weight, go_on)
                        if action.idle_s > 0:
                            heapq.heappush(self.pauses, (self.now + action.idle_s, next(self.numbers), work))
                        else:
                            work()
                        yield
                    continue
                name = state.step, 0 if action.key.lane in world.common else player.copy, action.key
                if isinstance(action, Begin):
                    self._enter(player, name)
                elif not (move := self.moves[name]).releases(player):
                    self._change(player)
                    state.held = move
                    yield
            self._change(player)
            state.ends.append(self.now)
        state.step = self.steps
        yield

    def _change(self, player: Player, moves: int = 0) -> None:
        """Count the time of a player until now."""
        state = self.states[player]
        if _SETTLED <= state.step < self.steps:
            self.spent[state.held is not None, state.moves > 0] += self.now - state.since
        state.since = self.now
        state.moves += moves

    def _enter(self, player: Player, name: tuple[int, int, Key]) -> None:
        if (move := self.moves.get(name)) is None:
            move = self.moves[name] = _Move(self.world, *name)
            self.lanes[move.lane].append(move)
        move.entered.add(player)
        self._begin_next(move.lane)

    def _begin_next(self, lane: tuple[int, str]) -> None:
        """Begin the next transfers of a lane, if their players are there and have a free thread."""
        queue = self.lanes[lane]
        while queue:
            move = queue[0]
            takers = [player for player in move.players if player in self.states]
            if not move.can_begin() or any(self.in_flight[lane, player] >= self.world.at_once for player in takers):
                return
            queue.popleft()
            chance = self.random.random()
            for player in takers:
                self.in_flight[lane, player] += 1
                self._change(player, moves=1)
                wanting = self.world.weight * self.world.carrying if self.world.machine is not None else 0.0
                seconds = self.world.seconds[move.key] * self._part(move, player, chance)
                self._start_job(seconds, wanting, partial(self._end, move, player))

    def _end(self, move: _Move, player: Player) -> None:
        """Complete a transfer for one of its players."""
        move.left.add(player)
        self.in_flight[move.lane, player] -= 1
        self._change(player, moves=-1)
        state = self.states[player]
        if state.held is move:
            state.held = None
            next(state.life)
        self._begin_next(move.lane)

    def _part(self, move: _Move, player: Player, chance: float) -> float:
        """Return the duration of a transfer relative to the expected one, as in the recorded step that is replayed.

        If several copies take part, all use the step of one copy, and copies take turns. The ranks of a collective wait
        for each other, so its duration varies for all of them alike.
        """
        if recorded := self.world.parts.get(move.key):
            copy = move.step % self.world.copies if move.key.lane in self.world.common else player.copy
            return recorded[self.orders[copy][move.step]].get(player.rank, 1.0)
        spread = self.world.spread.get(move.transfer.op)
        return spread[int(chance * len(spread))] if spread else 1.0
