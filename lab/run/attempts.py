"""Which attempt of a run each message of an agent is about; and what becomes of an attempt when the next one begins."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lab.record.events import Clock, Event, NodeLost, Over, Restarted
from lab.record.write import LATEST, RecordWriter
from lab.run.observe import Observer

if TYPE_CHECKING:
    from lab.diagnosis.facts import RankFacts, RunFacts

_TELL_S = 0.2
"""So often it is told at most who has met so far."""
_UNKNOWN = ("ROLE_", "TORCHELASTIC_")
"""How names of variables begin that a launcher sets as it likes."""


class Attempts:
    """Numbers the attempts of a run by what agents call them, in the order of their first appearance.

    A run whose agents call its attempt nothing has only one, and costs nothing here.
    """

    def __init__(self, facts: RunFacts, writer: RecordWriter, observer: Observer) -> None:
        self.facts = facts
        self.writer = writer
        self.observer = observer
        self.clocks: dict[str, Clock] = {}
        """By node: what the record of each attempt has to say of clocks."""
        self._numbers: dict[str, int] = {}
        """What agents call them -> their numbers."""
        self._told, self._told_at = 0, 0.0
        """Of how many ranks of the last one its plan tells, and since when."""

    def begin_with(self, key: str) -> None:
        """Call the first attempt so, whose ranks are those that are planned."""
        self._numbers[key] = 0

    def number(self, key: str) -> int:
        """The number of an attempt, which begins if nothing was heard of it yet; LATEST where it is called nothing."""
        if not key:
            return LATEST
        if key not in self._numbers:
            self._begin(key)
        elif len(self.facts.ranks) > self._told and time.monotonic() - self._told_at >= _TELL_S:
            self._tell(len(self._numbers) - 1)
        return self._numbers[key]

    def left_open(self, event: Event) -> list[int]:
        """Attempts before the last one that the loss of a node is about as well: it had ranks of them."""
        if not isinstance(event, NodeLost):
            return []
        return [
            number
            for number, facts in enumerate(self.facts.earlier)
            if any(rank.node == event.node and not rank.over for rank in facts.ranks)
        ]

    def _begin(self, key: str) -> None:
        number = len(self._numbers)
        if number == 0:
            self.facts.met = True
            self.facts.ranks.clear()  # who was planned may not be who meets
        else:
            self.writer.event(Restarted(time.time()))
            self.facts.add(Restarted(time.time()))
            self.writer.begin_attempt()
            self.facts.begin_attempt()
            self._tell(number - 1)
            for clock in self.clocks.values():
                self.writer.event(clock)
            self.observer.begins(number)
        self._numbers[key], self._told, self._told_at = number, 0, 0.0

    def _tell(self, number: int) -> None:
        """Put into the plan of an attempt who met there."""
        facts = self.facts.attempt(number)
        key = next(key for key, one in self._numbers.items() if one == number)
        if facts.ranks and self.writer.plan:
            self.writer.tell_workers(_met(self.writer.plan, facts, key), _first(facts), number)
        if facts is self.facts:
            self._told, self._told_at = len(facts.ranks), time.monotonic()

    def end(self) -> None:
        """Put into the plan of each attempt who met there, and into the events of those before the last when it ended.

        Called when the run is over: of an earlier attempt something may be heard until then.
        """
        for number in self._numbers.values():
            facts = self.facts.attempt(number)
            if facts is not self.facts and not facts.duration_s:
                ends = [rank.ended for rank in facts.ranks if rank.ended is not None]
                first = _first(facts) or time.time()
                over = Over(max(ends, default=first), max(0.0, max(ends, default=first) - first))
                self.writer.event(over, number)
                facts.add(over)
            self._tell(number)


def _first(facts: RunFacts) -> float | None:
    """Unix time at which the first worker was let go."""
    return min((rank.started for rank in facts.ranks if rank.started is not None), default=None)


def _met(plan: Mapping[str, Any], facts: RunFacts, key: str) -> dict[str, Any]:
    """What the plan of an attempt says of its workers: those that met, on the nodes where they were."""
    nodes: dict[str, list[RankFacts]] = {}
    for rank in facts.ranks:
        rank.local_rank = len(nodes.setdefault(rank.node, []))
        nodes[rank.node].append(rank)
    host, _, port = key.rpartition("@")[2].rpartition(":")
    store = {"master_addr": host, "master_port": int(port)} if host and port.isdecimal() else {}
    planned = {worker["rank"]: worker for worker in plan["workers"]}
    workers = []
    for rank in facts.ranks:
        known, group = planned.get(rank.rank, plan["workers"][0]), [*nodes].index(rank.node)
        env = {name: value for name, value in known["env"].items() if not name.startswith(_UNKNOWN)}
        told = {
            "RANK": rank.rank,
            "LOCAL_RANK": rank.local_rank,
            "GROUP_RANK": group,
            "WORLD_SIZE": len(facts.ranks),
            "LOCAL_WORLD_SIZE": len(nodes[rank.node]),
            "GROUP_WORLD_SIZE": len(nodes),
            **{name.upper(): value for name, value in store.items()},
        }
        env |= {name: str(value) for name, value in told.items() if name in env}
        place = {"rank": rank.rank, "local_rank": rank.local_rank, "node_rank": group, "node": rank.node}
        workers.append({**known, **place, "env": env, "expected_code": rank.expected_code})
    size = {"nnodes": len(nodes), "nproc_per_node": max(map(len, nodes.values())), "world_size": len(facts.ranks)}
    return {**size, **store, "workers": workers}
