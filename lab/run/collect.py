"""Turn the messages of agents into facts, into the record, and into what an observer sees."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lab.diagnosis.facts import RunFacts
from lab.errors import ClusterBusy, NodeLost
from lab.feature import hook, view
from lab.node.messages import wire
from lab.node.messages.agent import (
    ANSWERS,
    STARTER,
    AskTime,
    Breakpoint,
    Busy,
    Claimed,
    Cleaning,
    Connections,
    Continued,
    Done,
    Exited,
    Finished,
    Halted,
    Joined,
    LeftRunning,
    Limited,
    Made,
    Named,
    Note,
    Output,
    Piece,
    Prepared,
    Reached,
    Refused,
    Stack,
    Staged,
    Started,
    Taken,
    ThreadRaised,
    TimeTold,
    Trace,
)
from lab.node.recorder.journal import clock_id
from lab.record import events
from lab.record.events import (
    Clock,
    Event,
    Fault,
    FaultHealed,
    Misunderstood,
    NodeCame,
    NodeTroubled,
    Over,
    Refusal,
    Restarted,
)
from lab.record.write import LATEST, RecordWriter
from lab.run.observe import Observer
from lab.words import format_duration

if TYPE_CHECKING:
    from lab.diagnosis.facts import RankFacts, RunFacts

EXCHANGES = 8
"""Of so many in a row, the one that took least time tells most."""


class Clocks:
    """Of the nodes of one run. Those on this machine's kernel have its clock, and are not asked.

    Args:
        tell: takes what was found.
    """

    def __init__(self, tell: Callable[[Clock], object]) -> None:
        self.ask: Callable[[str, AskTime], object] = lambda *_: None
        """Says something to the agent of a node."""
        self._tell = tell
        self._best: dict[str, Clock] = {}
        """By node: of the exchanges that go on."""
        self._left: dict[str, int] = {}
        """By node: how many of them are still to come."""
        self._own: dict[str, tuple[str, str]] = {}
        """By node: its address, and its clock, where that is not this machine's."""

    def claimed(self, node: str, address: str, answer: Claimed, sent: float) -> None:
        """A node takes part, which was asked at `sent`: the first exchange."""
        clock = clock_of(node, answer, sent, time.time())._replace(address=address)
        self._tell(clock)
        self._own.pop(node, None)
        self._left.pop(node, None)
        if clock.error_s:
            self._own[node] = address, answer.boot
            self.compare(answer.run, [node])

    def compare(self, run: str, nodes: Iterable[str]) -> None:
        """Begin exchanges with the nodes that have a clock of their own, and are not at it."""
        for node in {node for node in self._own.keys() & set(nodes) if not self._left.get(node)}:
            self._left[node] = EXCHANGES
            self._best.pop(node, None)
            self.ask(node, AskTime(run, time.time()))

    def hear(self, node: str, told: TimeTold) -> None:
        """A node has said what time it is: ask again, or tell what was best."""
        now = time.time()
        if not self._left.get(node) or not told.asked <= now:
            return
        address, own = self._own[node]
        took_s = now - told.asked
        asked = (told.asked + now) / 2
        clock = Clock(asked, node, round(told.time - asked, 9), round(took_s / 2, 9), own, address, told.monotonic_s)
        self._best[node] = min(self._best.get(node, clock), clock, key=lambda one: one.error_s)
        self._left[node] -= 1
        if self._left[node]:
            self.ask(node, AskTime(told.run, time.time()))
        else:
            self._tell(self._best[node])

    def settled(self, nodes: Iterable[str]) -> bool:
        """Whether none of these is still asked."""
        return not any(map(self._left.get, nodes))


def clock_of(node: str, answer: Claimed, sent: float, received: float) -> Clock:
    """How far a node's clock is ahead of this machine's, and how wrong that may be; it was asked at `sent`."""
    if answer.boot.partition(" ")[0] == clock_id().partition(" ")[0]:
        return Clock(received, node, 0.0, 0.0, answer.boot)
    offset = round(answer.time - (sent + received) / 2, 9)
    return Clock(received, node, offset, round((received - sent) / 2, 9), answer.boot)


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
        if not isinstance(event, events.NodeLost):
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


NO_RUN = "node"
"""Stands for a message where the node is none for any run: an earlier one could not be cleaned up."""
_FACTS = (Started, Note, Named, ThreadRaised, Halted, Exited, Limited, Joined, LeftRunning, Staged)
"""Messages that go into the record as they are."""
BEFORE_THE_START = ("claim", "files", "prepare")
"""Messages whose refusal means that the run cannot begin."""
WHILE_IT_RUNS = ("run", "go", "ping")
"""Messages whose refusal means that the node does not have the run any more; `run`: its agent says so unasked."""


_FOR_OTHERS = (Made, Piece, Taken, Breakpoint, Continued, Cleaning, Done, Reached)
"""Messages of which nothing is recorded: parts of the run, and what goes along with it, act on them."""


class Collector:
    """Collects the facts of one run, for its record and for whoever watches it.

    Args:
        facts: of the run.
        writer: of the record.
        observer: told what happens.
        listener: called with each message, and the node whose agent sent it.
    """

    def __init__(
        self, facts: RunFacts, writer: RecordWriter, observer: Observer, listener: Callable[[str, Any], object]
    ) -> None:
        self.facts = facts
        self.writer = writer
        self.observer = observer
        self.listener = listener
        self.claimed: set[str] = set()
        self.prepared: set[str] = set()
        self.finished: set[str] = set()
        """Nodes that have answered so."""
        self.claims_sent: dict[str, float] = {}
        """Node -> Unix time at which it was sent its claim."""
        self.attempts = Attempts(facts, writer, observer)
        self.clocks = Clocks(self._tell_clock)
        self._whereabouts: tuple[int, Any] | None = None
        """Of which attempt, and where its ranks are."""
        self.addresses: dict[str, str] = {}
        """By address: the names of the nodes."""
        self.heard = 0
        """How many messages have arrived: whoever cleans its node, or sends traces, says something."""

    def collect(self, node: str, message: wire.Message | wire.Malformed) -> None:
        """Take one message of a node's agent.

        Raises:
            ClusterBusy: somebody else has the node.
            NodeLost: the node is none for any run.
            RecordError: the record cannot be written.
        """
        self.heard += 1
        match message:
            case Output():
                self._output(node, message)
            case Trace():
                self.writer.trace(message.rank, message.data, self.attempts.number(message.attempt))
            case Stack():
                self.fact(message._replace(text=message.text or "(no Python stack)"))
            case Connections():
                if message.peer in self.addresses:  # scripts may talk with anybody else, too
                    self.fact(message._replace(node=node, peer=self.addresses[message.peer]))
            case Claimed():
                self._claimed(node, message)
            case TimeTold():
                self.clocks.hear(node, message)
            case Prepared():
                self.prepared.add(node)
            case Finished():
                self.finished.add(node)
            case Busy():
                raise ClusterBusy(
                    f"{node} is busy with run {message.holder} of {message.owner}, "
                    f"for {format_duration(message.age_s)}",
                    "wait until it ends, or use another cluster with --name",
                )
            case Refused():
                self._refused(node, message)
            case _ if isinstance(message, _FACTS):
                self.fact(message)
            case _ if not isinstance(message, _FOR_OTHERS):
                self._misunderstood(node, message)
        self.listener(node, message)

    def _output(self, node: str, message: Output) -> None:
        if message.rank == STARTER:
            self.writer.launcher_output(node, message.data)
        elif message.stream != ANSWERS:
            attempt = self.attempts.number(message.attempt)
            self.writer.output(message.rank, message.stream, message.data, message.time, attempt)
            self.observer.output(message.rank, node, message.stream, message.data, message.time)

    def where(self, elapsed_s: float, columns: int) -> str:
        """Where the ranks that run are, in one line; empty where that is not known."""
        attempt = len(self.facts.earlier)
        if self._whereabouts is None or self._whereabouts[0] != attempt:
            from lab.record.read import Record

            make = view("whereabouts")
            self._whereabouts = attempt, make(Record(path=self.writer.path)) if make else None
        whereabouts = self._whereabouts[1]
        return whereabouts.line(elapsed_s, columns, lambda rank: not self.facts.rank(rank).over) if whereabouts else ""

    def fact(self, event: Event) -> None:
        """Take one fact, into the record too."""
        attempt = self.attempts.number(getattr(event, "attempt", ""))
        for one in (*self.attempts.left_open(event), attempt):
            self.writer.event(event, one)
            self.facts.attempt(one).add(event)
        if isinstance(event, Exited) and event.rank != STARTER:
            self.writer.settle(event.rank, attempt=attempt)
        if isinstance(event, Named) and len(self.facts.named) == 1:  # of all ranks, the first
            find_named_backends = hook("named_backends")
            if find_named_backends:
                self.observer.progress(find_named_backends(self.facts.named)[0].headline)
        if isinstance(event, (Halted, NodeTroubled, NodeCame, Fault, FaultHealed)):
            self.observer.progress(self._from_outside(event))

    def _from_outside(self, event: Halted | NodeTroubled | NodeCame | Fault | FaultHealed) -> str:
        if isinstance(event, FaultHealed):
            return f"{event.fault} is healed: {event.why}"
        if isinstance(event, Fault):
            return f"{event.fault}, on purpose: {event.why or 'before the run'}"
        if isinstance(event, NodeCame):
            return f"{event.node} takes part"
        if isinstance(event, NodeTroubled):
            return f"{event.node} {event.how or 'works again'}"
        return f"rank {event.rank} ({event.node}) " + (f"was stopped by {event.signal}" if event.signal else "goes on")

    def _claimed(self, node: str, claimed: Claimed) -> None:
        self.claimed.add(node)
        sent = self.claims_sent.get(node)
        if sent is not None:
            address = next((one for one, name in self.addresses.items() if name == node), "")
            self.clocks.claimed(node, address, claimed, sent)

    def _tell_clock(self, clock: Clock) -> None:
        """What is told later on is in the record of each attempt too."""
        self.attempts.clocks[clock.node] = clock
        last = len(self.facts.earlier)
        for number in range(0 if clock.monotonic_s else last, last + 1):
            self.writer.event(clock, number)
            self.facts.attempt(number).add(clock)

    def _refused(self, node: str, message: Refused) -> None:
        """An agent does not act on something: it cannot start the run, or has it no more."""
        if message.what == NO_RUN:
            raise NodeLost(
                f"{node} cannot take a run: {message.reason}", "make a new cluster with `lab down` and `lab up`"
            )
        if message.what in BEFORE_THE_START:
            self.fact(Refusal(time.time(), node, f"{node} could not start the run: {message.reason}"))
        elif message.what in WHILE_IT_RUNS and node not in self.finished:
            self.fact(Refusal(time.time(), node, f"{node} gave the run up: {message.reason}"))
            self.finished.add(node)
        elif message.what == "check":
            self.fact(Exited(-1, time.time(), node, error=f"the check could not start: {message.reason}"))
        elif message.what in ("finish", "fetch"):
            self.finished.add(node)

    def _misunderstood(self, node: str, message: wire.Message | wire.Malformed) -> None:
        """Before the start nothing can be expected of such a node; in mid-run it is only put on record."""
        reason = message.reason if isinstance(message, wire.Malformed) else f"{wire.kind_of(message)} is not an answer"
        if node in self.prepared:
            self.fact(Misunderstood(time.time(), node, reason))
        else:
            self.fact(Refusal(time.time(), node, f"{node} cannot be understood: {reason}"))
