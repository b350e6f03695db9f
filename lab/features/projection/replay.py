"""Replays programs: what ranks do when their work and their calls take other times, and what then a step takes.

The ranks on record go through their recorded steps again, and copies of them do so in other orders, all ranks of a copy
together: so whoever is late now and then is late there too, and the more there are, the later is the latest, for whom
all wait. Where ranks share the cores of a machine, what works at a moment gets its part of them, as in
`lab.features.projection.contention`.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from lab.errors import LabError
from lab.features.projection.actions import Action, Begin, Key, Transfer, Work
from lab.features.projection.world import Player, Replayed, World
from lab.operations import Who, operation
from lab.words import plural

_STEPS = 24
"""At most so many training steps count in a replay; those on record do, each once, where they are no more."""
_FEWEST = 4
_ACTIONS = 100_000
"""Where there is so much to do, fewer steps are replayed, so that nobody waits for long."""
_SETTLED = 2
"""So many go before them: there is nothing behind which the first could wait."""
_SEED = 7


@dataclass(slots=True)
class _Move:
    """A transfer of one training step."""

    transfer: Transfer
    players: int
    """That take part."""
    entered: set[Player] = field(default_factory=set)
    begun: bool = False
    left: set[Player] = field(default_factory=set)
    """For whom it is over."""
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
Lane = tuple[int, str]
"""Of a copy."""


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
        recorded = len(next(iter(world.turns.values())))
        self.steps = _SETTLED + max(_FEWEST, min(_STEPS, recorded, _ACTIONS // max(1, actions)))
        self.states = {Player(rank, copy): _State() for rank in world.turns for copy in range(world.copies)}
        self.orders = [self._order(copy, recorded) for copy in range(world.copies)]
        """By copy and step: which of the recorded steps it is."""
        self.moves: dict[Name, _Move] = {}
        self.lanes: dict[Lane, deque[Name]] = defaultdict(deque)
        """What has not begun."""
        self.carried: Counter[tuple[Lane, Player]] = Counter()
        """So much of each lane is on its way to each."""
        self.jobs: list[tuple[float, int, float, Callable[[], None]]] = []
        self.pauses: list[tuple[float, int, Callable[[], None]]] = []
        """What wants no core, with when it ends."""
        self.now, self.clock, self.weight, self.number = 0.0, 0.0, 0.0, 0

    def run(self) -> Replayed:
        for player in self.states:
            self._next_step(player)
        for player in self.states:
            self._go_on(player)
        while self.jobs or self.pauses:
            self._advance()()
        stuck = sum(state.step < self.steps for state in self.states.values())
        if stuck:
            raise LabError(f"the run cannot be replayed: {plural(stuck, 'rank')} would wait for what nobody begins")
        return self._result()

    def _advance(self) -> Callable[[], None]:
        """Let time pass until something is done; what then is to be done."""
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

    def _job(self, seconds: float, weight: float, done: Callable[[], None]) -> None:
        self.number += 1
        self.weight += weight
        heapq.heappush(self.jobs, (self.clock + seconds, self.number, weight, done))

    def _order(self, copy: int, recorded: int) -> list[int]:
        """Of the first copy that of the record, if there are not too many."""
        counted = self.steps - _SETTLED
        order = list(range(recorded))
        if copy or recorded > counted:
            self.random.shuffle(order)
        return [order[(step - _SETTLED) % recorded] for step in range(self.steps)]

    def _next_step(self, player: Player) -> None:
        state = self.states[player]
        state.step, state.place = state.step + 1, 0
        state.spent.append(defaultdict(float))
        if state.step < self.steps:
            state.actions = self.world.turns[player.rank][self.orders[player.copy][state.step]]

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
                if action.whole_s > 0:
                    self._work(player, action)
                    return
                continue
            name = self._name(state.step, player, action.key)
            if isinstance(action, Begin):
                self._enter(player, name)
            elif not self._free(self.moves[name], player):
                self.moves[name].held.append(player)
                self._changes(player, held=True)
                return

    def _work(self, player: Player, work: Work) -> None:
        def compute() -> None:
            self._job(work.seconds, self.world.weight, lambda: self._go_on(player))

        if work.idle_s > 0:
            self.number += 1
            heapq.heappush(self.pauses, (self.now + work.idle_s, self.number, compute))
        else:
            compute()

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

    def _begin_next(self, lane: Lane) -> None:
        """Begin the next transfers of a lane, if all whom they need are there and have a thread for them."""
        queue = self.lanes[lane]
        while queue:
            name = queue[0]
            takers = self._takers(name)
            if not self._complete(self.moves[name]) or any(
                self.carried[lane, player] >= self.world.at_once for player in takers
            ):
                return
            queue.popleft()
            self.moves[name].begun = True
            chance = self.random.random()
            for player in takers:
                self.carried[lane, player] += 1
                self._changes(player, moves=1)
                self._carry(lane, name, player, chance)

    def _carry(self, lane: Lane, name: Name, player: Player, chance: float) -> None:
        """A transfer to one of its players, until it is over there."""
        move, key = self.moves[name], name[2]

        def done() -> None:
            move.left.add(player)
            self.carried[lane, player] -= 1
            self._changes(player, moves=-1)
            if player in move.held:
                move.held.remove(player)
                self._changes(player, held=False)
                self._go_on(player)
            self._begin_next(lane)

        wanting = self.world.weight * self.world.carrying if self.world.machine is not None else 0.0
        self._job(self.world.seconds[key] * self._part(name, player, chance), wanting, done)

    def _part(self, name: Name, player: Player, chance: float) -> float:
        """What a transfer takes there, as a part of what it ought to take: what it was in the step that is replayed.

        One in which several copies take part takes for all what it took in the step of one of them, who take turns: as
        its ranks wait for one another within it, its time varies for all alike.
        """
        step, _, key = name
        if recorded := self.world.parts.get(key):
            copy = step % self.world.copies if key.lane in self.world.common else player.copy
            return recorded[self.orders[copy][step]].get(player.rank, 1.0)
        spread = self.world.spread.get(self.world.transfers[key].op)
        return spread[int(chance * len(spread))] if spread else 1.0

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
        return player in move.left or (op.taker is Who.ROOT and player.rank != move.transfer.root)

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
