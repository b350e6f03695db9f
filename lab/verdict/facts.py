"""What is known of a run: while it goes on from what its agents say, afterwards from its record; both by `take`."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.plan.plan import Plan
    from lab.record.read import Record


@dataclass
class RankFacts:
    """What is known of one rank. Times are Unix time of its node's clock."""

    rank: int
    node: str = ""
    local_rank: int = 0
    started: float | None = None
    ended: float | None = None
    code: int | None = None
    signal: str | None = None
    out_of_memory: bool = False
    stopped: bool = False
    """Whether the lab stopped it: it was alive until then."""
    node_lost: bool = False
    """Whether its node went away while it ran."""
    error: str = ""
    traceback: str = ""
    raised: float | None = None
    """When it raised; earlier than when it ended."""
    stack: str = ""
    """As faulthandler wrote it when it crashed, or when the run did not go on."""
    seen: float | None = None
    """When its stack was asked for."""
    notes: dict[str, Any] = field(default_factory=dict)
    expected_code: int = 0
    """The exit code that is no failure; -9 stands for an end by signal 9."""

    @property
    def over(self) -> bool:
        """Whether nothing more can come from it."""
        return self.ended is not None or self.node_lost

    @property
    def alive(self) -> bool:
        """Whether it ran until the lab stopped it, or until the record ends."""
        return self.stopped or not self.over

    @property
    def failed(self) -> bool:
        """Whether it ended in a way that nobody expected, by itself."""
        if self.stopped or self.ended is None:
            return False
        code = -signal.Signals[self.signal] if self.signal and hasattr(signal, self.signal) else self.code
        return code != self.expected_code

    @property
    def left(self) -> bool:
        """Whether it ended by itself, as expected."""
        return self.ended is not None and not self.stopped and not self.failed


@dataclass
class LostNode:
    """A node that went away in mid-run."""

    node: str
    how: str
    """How it ended, as the end of a sentence that begins with its name."""
    time: float


@dataclass
class RunFacts:
    """What is known of a run."""

    ranks: list[RankFacts]
    timeout_s: float = 0.0
    memory_bytes: int | None = None
    """Memory limit of a node."""
    lost_nodes: list[LostNode] = field(default_factory=list)
    timed_out: bool = False
    interrupted: bool = False
    engine_lost: str = ""
    """Why the engine is thought to be gone."""
    refused: str = ""
    """Why an agent would not start the run."""
    duration_s: float = 0.0
    check: RankFacts | None = None
    """The scenario's own check, if it ran."""

    def rank(self, number: int) -> RankFacts:
        """The facts of a rank, made where there are none yet; -1 is the scenario's own check."""
        if number < 0:
            self.check = self.check or RankFacts(rank=-1, node="node0", local_rank=-1)
            return self.check
        if number < len(self.ranks) and self.ranks[number].rank == number:
            return self.ranks[number]
        known = next((rank for rank in self.ranks if rank.rank == number), None)
        if known is None:
            known = RankFacts(rank=number)
            self.ranks = sorted([*self.ranks, known], key=lambda rank: rank.rank)
        return known

    def take(self, event: Mapping[str, Any]) -> None:
        """Add what an event tells; what is damaged in it is passed over."""
        kind, time = event.get("event"), _number(event, "time")
        if isinstance(event.get("rank"), int):
            _take(event, kind, time, self.rank(event["rank"]))
        elif kind in ("node lost", "engine lost"):
            for rank in self.ranks:
                rank.node_lost |= not rank.over and rank.node == event.get("node")
            if kind == "engine lost":
                self.engine_lost = _text(event, "reason")
            else:
                self.lost_nodes.append(LostNode(_text(event, "node"), _text(event, "how"), time or 0.0))
        elif kind == "refused":
            self.refused = self.refused or _text(event, "reason")
        elif kind == "timed out":
            self.timed_out = True
        elif kind == "interrupted":
            self.interrupted = True
        elif kind == "over":
            self.duration_s = _number(event, "duration_s") or 0.0


def begin_facts(plan: Plan, memory_bytes: int | None) -> RunFacts:
    """What is known of a run before it begins."""
    ranks = [
        RankFacts(
            rank=worker.rank,
            node=worker.node,
            local_rank=worker.local_rank,
            expected_code=worker.expected_code,
        )
        for worker in plan.workers
    ]
    return RunFacts(ranks=ranks, timeout_s=plan.timeout_s, memory_bytes=memory_bytes)


def read_facts(record: Record) -> RunFacts:
    """What a record knows of its run: the facts that its verdict was made from."""
    plan = record.plan()
    facts = RunFacts(ranks=[], timeout_s=_number(plan, "timeout_s") or 0.0)
    facts.memory_bytes = plan["memory_bytes"] if isinstance(plan.get("memory_bytes"), int) else None
    for number, node in record.workers().items():
        facts.rank(number).node = node
    workers = plan.get("workers")
    for worker in workers if isinstance(workers, list) else ():
        if isinstance(worker, dict) and isinstance(worker.get("rank"), int):
            rank = facts.rank(worker["rank"])
            rank.local_rank, rank.expected_code = (
                _whole(worker, "local_rank") or 0,
                _whole(worker, "expected_code") or 0,
            )
    told = False
    for event in record.events():
        facts.take(event)
        told = True
    if not told and record.complete:
        _take_result(record.result(), facts)
    return facts


def _take(event: Mapping[str, Any], kind: Any, time: float | None, rank: RankFacts) -> None:
    """Add what an event tells of one rank."""
    if kind == "started":
        rank.started, rank.node = time, rank.node or _text(event, "node")
    elif kind == "note":
        rank.notes[_text(event, "name")] = event.get("value")
    elif kind == "stack":
        rank.stack, rank.seen = _text(event, "text"), time
    elif kind == "exited":
        rank.ended, rank.node = time, rank.node or _text(event, "node")
        rank.raised, rank.code = _number(event, "raised"), _whole(event, "code")
        _take_end(event, rank)


def _take_end(end: Mapping[str, Any], rank: RankFacts) -> None:
    rank.signal, rank.stopped = _text(end, "signal") or None, bool(end.get("stopped"))
    rank.out_of_memory = bool(end.get("out_of_memory"))
    rank.error, rank.traceback = _text(end, "error"), _text(end, "traceback")
    rank.stack = rank.stack or _text(end, "stack")


def _take_result(result: Mapping[str, Any], facts: RunFacts) -> None:
    """The ends of ranks as `result.json` tells them, where the events are lost."""
    facts.timed_out = result.get("verdict") == "hung"
    for end in result.get("ranks", ()):
        if isinstance(end, dict) and isinstance(end.get("rank"), int) and end["rank"] >= 0:
            rank = facts.rank(end["rank"])
            rank.node, rank.code = rank.node or _text(end, "node"), _whole(end, "exit_code")
            rank.ended = _number(end, "duration_s") or 0.0
            _take_end(end, rank)


def _number(facts: Mapping[str, Any], key: str) -> float | None:
    value = facts.get(key)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _whole(facts: Mapping[str, Any], key: str) -> int | None:
    value = facts.get(key)
    return value if isinstance(value, int) else None


def _text(facts: Mapping[str, Any], key: str) -> str:
    value = facts.get(key)
    return value if isinstance(value, str) else ""
