"""Replays programs: what ranks do when their work and their calls take other times, and what then a step takes.

The ranks on record, and copies of them, go through recorded steps, drawn by chance for all ranks of a copy together, so
that whoever is late now and then is late there too, and all wait for the latest. Where ranks share the cores of a
machine, what works at a moment gets its part of them, as in `lab.projection.contention`.
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from lab.errors import LabError
from lab.operations import Who, operation
from lab.projection.contention import Machine
from lab.projection.program import Action, Begin, Key, Transfer, Work
from lab.words import plural

_STEPS = 12
"""Training steps that are replayed, one after the other."""
_FEWEST = 4
_ACTIONS = 100_000
"""Where there is so much to do, fewer steps are replayed, so that nobody waits for long."""
_SETTLED = 2
"""Of them the first do not count: there is nothing behind which they could wait."""
_SEED = 7


class Player(NamedTuple):
    """Who goes through the steps of a recorded rank."""

    rank: int
    """On record."""
    copy: int
    """From 0: which of those that go through the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What is replayed."""

    turns: Mapping[int, Sequence[Sequence[Action]]]
    """By rank on record, what it did in each step."""
    transfers: Mapping[Key, Transfer]
    seconds: Mapping[Key, float]
    """What each transfer takes when nothing else goes on."""
    spread: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """By operation: parts of that which it takes, to draw from."""
    copies: int = 1
    """Of each rank."""
    common: frozenset[str] = frozenset()
    """Lanes in which all copies take part in the same transfer; of others each copy has its own."""
    weight: float = 1.0
    """Ranks that each player stands for, where cores are shared."""
    machine: Machine | None = None
    """That all ranks share; None: each has cores of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What came of it; seconds of one training step, mean of the ranks but for the first."""

    step_s: float
    """Median."""
    steps_s: tuple[float, ...]
    """Of each step that counts."""
    own_s: float
    """Own work, with what its part of the cores makes of it."""
    exposed_s: float
    """In which a rank was held up by calls while data was on its way to it or from it."""
    waiting_s: float
    """In which it was held up and none was: it waited for others."""
    hidden_s: float
    """In which data was on its way, and it went on."""


@dataclass(slots=True)
class _Move:
    """A transfer of one training step."""

    transfer: Transfer
    players: int
    """That take part."""
    entered: set[Player] = field(default_factory=set)
    begun: bool = False
    over: bool = False
    held: list[Player] = field(default_factory=list)
    """Who waits for it."""


@dataclass(slots=True)
class _State:
    """Where a player is."""

    actions: Sequence[Action] = ()
    place: int = 0
    step: int = -1
    ends: list[float] = field(default_factory=list)
    moves: int = 0
    """On their way."""
    held: bool = False
    since: float = 0.0
    """When one of the two above last changed."""
    spent: list[dict[tuple[bool, bool], float]] = field(default_factory=list)
    """By step: seconds, by whether it was held up, and whether data was on its way."""


Name = tuple[int, int, Key]
"""Of a transfer: its training step, its copy, and which it is."""


def replay(world: World) -> Replayed:
    """The world's training steps, from the first to the last; the same in every replay.

    Raises:
        LabError: what is on record does not go on: a rank waits for what nobody begins.
    """
    return _Replay(world).run()


class _Replay:
    """The state of a replay. Jobs end at a reading of a clock that runs as fast as they get cores."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = random.Random(_SEED)
        actions = world.copies * sum(len(steps[0]) for steps in world.turns.values())
        self.steps = max(_FEWEST, min(_STEPS, _ACTIONS // max(1, actions)))
        self.states = {Player(rank, copy): _State() for rank in world.turns for copy in range(world.copies)}
        self.draws: list[list[float]] = [[] for _ in range(world.copies)]
        """By copy and step: which of the recorded steps it is, from 0 to 1; the same for all ranks of a copy."""
        self.moves: dict[Name, _Move] = {}
        self.lanes: dict[tuple[int, str], list[Name]] = defaultdict(list)
        self.jobs: list[tuple[float, int, float, Callable[[], None]]] = []
        self.now, self.clock, self.weight, self.number = 0.0, 0.0, 0.0, 0

    def run(self) -> Replayed:
        for player in self.states:
            self._next_step(player)
        for player in self.states:
            self._go_on(player)
        while self.jobs:
            until, _, weight, done = heapq.heappop(self.jobs)
            rate = 1.0 if self.world.machine is None else self.world.machine.rate(self.weight)
            self.now += max(0.0, until - self.clock) / rate
            self.clock = max(self.clock, until)
            self.weight -= weight
            done()
        stuck = sum(state.step < self.steps for state in self.states.values())
        if stuck:
            raise LabError(f"the run cannot be replayed: {plural(stuck, 'rank')} would wait for what nobody begins")
        return self._result()

    def _job(self, seconds: float, weight: float, done: Callable[[], None]) -> None:
        self.number += 1
        self.weight += weight
        heapq.heappush(self.jobs, (self.clock + seconds, self.number, weight, done))

    def _next_step(self, player: Player) -> None:
        state = self.states[player]
        state.step, state.place = state.step + 1, 0
        state.spent.append(defaultdict(float))
        draws = self.draws[player.copy]
        if state.step == len(draws):
            draws.append(self.random.random())
        turns = self.world.turns[player.rank]
        state.actions = turns[int(draws[state.step] * len(turns))]

    def _go_on(self, player: Player) -> None:
        """Do what can be done at once, up to own work, or to a wait for what is not over."""
        state = self.states[player]
        while state.step < self.steps:
            if state.place == len(state.actions):
                self._changes(player)
                state.ends.append(self.now)
                self._next_step(player)
                continue
            action = state.actions[state.place]
            state.place += 1
            if isinstance(action, Work):
                if action.seconds > 0:
                    self._work(player, action.seconds)
                    return
                continue
            name = self._name(state.step, player, action.key)
            if isinstance(action, Begin):
                self._enter(player, name)
            elif not self._free(self.moves[name], player):
                self.moves[name].held.append(player)
                self._changes(player, held=True)
                return

    def _work(self, player: Player, seconds: float) -> None:
        self._job(seconds, self.world.weight, lambda: self._go_on(player))

    def _changes(self, player: Player, held: bool | None = None, moves: int = 0) -> None:
        """What a player did until now is counted."""
        state = self.states[player]
        state.spent[state.step][state.held, state.moves > 0] += self.now - state.since
        state.since = self.now
        state.held = state.held if held is None else held
        state.moves += moves

    def _name(self, step: int, player: Player, key: Key) -> Name:
        return step, 0 if key.lane in self.world.common else player.copy, key

    def _enter(self, player: Player, name: Name) -> None:
        _, copy, key = name
        if name not in self.moves:
            transfer = self.world.transfers[key]
            players = len(transfer.ranks) * (self.world.copies if key.lane in self.world.common else 1)
            self.moves[name] = _Move(transfer, players)
            self.lanes[copy, key.lane].append(name)
        self.moves[name].entered.add(player)
        self._begin_next((copy, key.lane))

    def _begin_next(self, lane: tuple[int, str]) -> None:
        """Begin the first transfer of a lane, if all whom it needs are there."""
        queue = self.lanes[lane]
        if not queue:
            return
        move, key = self.moves[queue[0]], queue[0][2]
        if move.begun or not self._complete(move):
            return
        move.begun = True
        takers = self._takers(queue[0])
        for player in takers:
            self._changes(player, moves=1)

        def done() -> None:
            move.over = True
            queue.pop(0)
            for player in takers:
                self._changes(player, moves=-1)
            held, move.held = move.held, []
            for player in held:
                self._changes(player, held=False)
                self._go_on(player)
            self._begin_next(lane)

        busy = self.world.weight * move.players if self.world.machine is not None else 0.0
        spread = self.world.spread.get(move.transfer.op)
        self._job(self.world.seconds[key] * (self.random.choice(spread) if spread else 1.0), busy, done)

    def _takers(self, name: Name) -> list[Player]:
        _, copy, key = name
        copies = range(self.world.copies) if key.lane in self.world.common else (copy,)
        players = (Player(rank, one) for rank in self.world.transfers[key].ranks for one in copies)
        return [player for player in players if player in self.states]

    def _complete(self, move: _Move) -> bool:
        """Whether data can flow: all are there, or the one whose data it is."""
        transfer, op = move.transfer, operation(move.transfer.op)
        if op.sends or op.receives or op.giver is Who.ROOT:
            giver = transfer.root if op.giver is Who.ROOT else transfer.ranks[0]
            return any(player.rank == giver for player in move.entered)
        return len(move.entered) == move.players

    def _free(self, move: _Move, player: Player) -> bool:
        """Whether one that waits for a transfer may go on: who only gives does not wait for who takes."""
        op = operation(move.transfer.op)
        return move.over or (op.taker is Who.ROOT and player.rank != move.transfer.root)

    def _result(self) -> Replayed:
        steps = range(_SETTLED, self.steps)
        states = self.states.values()
        taken = [median(state.ends[number] - state.ends[number - 1] for state in states) for number in steps]
        count = len(self.states) * len(steps)
        spent: dict[tuple[bool, bool], float] = defaultdict(float)
        for state in states:
            for number in steps:
                for how, seconds in state.spent[number].items():
                    spent[how] += seconds / count
        return Replayed(
            step_s=median(taken),
            steps_s=tuple(taken),
            own_s=spent[False, False] + spent[False, True],
            exposed_s=spent[True, True],
            waiting_s=spent[True, False],
            hidden_s=spent[False, True],
        )
