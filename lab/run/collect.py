"""Turn the messages of agents into facts, into the record, and into what an observer sees."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lab.errors import ClusterBusy, NodeLost
from lab.feature import hook, view
from lab.node.messages import agent, wire
from lab.node.recorder.journal import clock_id
from lab.record import events
from lab.record.events import Clock, Event
from lab.record.write import LATEST, RecordWriter
from lab.words import format_duration

if TYPE_CHECKING:
    from lab.diagnosis.facts import RankFacts, RunFacts


class Observer:
    """Watches a run; every method returns quickly. This one does nothing."""

    def progress(self, text: str) -> None:
        """Something is being done that takes a moment."""

    def output(self, rank: int, node: str, stream: int, data: bytes, when: float) -> None:
        """A rank printed something: any bytes, not necessarily whole lines."""

    def tick(self, elapsed_s: float, running: int, where: Callable[[float, int], str]) -> None:
        """The run goes on; called about once a second. `where` says where ranks are, by time and columns."""

    def begins(self, attempt: int) -> None:
        """The launcher began the workers anew: what comes now is mostly of this attempt; the first was 0."""

    def terminal(self, rank: int | None, told: str, *, raw: bool) -> None:
        """A rank has the terminal now, or none: what to say of that, and whether all that it writes may act there.

        What it writes there comes as output of stream 3.
        """


EXCHANGES = 8
"""Of so many in a row, the one that took least time tells most."""


class Clocks:
    """Of the nodes of one run. Those on this machine's kernel have its clock, and are not asked.

    Args:
        report: called with each clock that was measured.
    """

    def __init__(self, report: Callable[[Clock], object]) -> None:
        self.ask: Callable[[str, agent.AskTime], object] = lambda *_: None
        """Sends a message to the agent of a node."""
        self._report = report
        self._foreign: dict[str, Clock] = {}
        """By node: its clock as it was claimed, where that is not this machine's."""
        self._exchanges: dict[str, list[Clock]] = {}
        """By node that is being asked: what its answers so far tell."""

    def claimed(self, node: str, address: str, answer: agent.Claimed, sent: float) -> None:
        """A node takes part, which was asked at `sent`: the first exchange."""
        clock = clock_of(node, answer, sent, time.time())._replace(address=address)
        self._report(clock)
        self._foreign.pop(node, None)
        self._exchanges.pop(node, None)
        if clock.error_s:
            self._foreign[node] = clock
            self.compare(answer.run, [node])

    def compare(self, run: str, nodes: Iterable[str]) -> None:
        """Begin exchanges with the nodes that have a clock of their own, and are not being asked."""
        for node in (self._foreign.keys() & set(nodes)) - self._exchanges.keys():
            self._exchanges[node] = []
            self.ask(node, agent.AskTime(run, time.time()))

    def hear(self, node: str, answer: agent.ClockReading) -> None:
        """A node has said what time it is: ask again, or report the best answer."""
        now, exchanges = time.time(), self._exchanges.get(node)
        if exchanges is None or not answer.asked <= now:
            return
        asked, error_s = (answer.asked + now) / 2, round((now - answer.asked) / 2, 9)
        clock = self._foreign[node]._replace(time=asked, offset_s=round(answer.time - asked, 9), error_s=error_s)
        exchanges.append(clock._replace(monotonic_s=answer.monotonic_s))
        if len(exchanges) < EXCHANGES:
            self.ask(node, agent.AskTime(answer.run, time.time()))
        else:
            del self._exchanges[node]
            self._report(min(exchanges, key=lambda clock: clock.error_s))

    def settled(self, nodes: Iterable[str]) -> bool:
        """Whether none of these is still asked."""
        return self._exchanges.keys().isdisjoint(nodes)


def clock_of(node: str, answer: agent.Claimed, sent: float, received: float) -> Clock:
    """How far a node's clock is ahead of this machine's, and how wrong that may be; it was asked at `sent`."""
    if answer.boot.partition(" ")[0] == clock_id().partition(" ")[0]:
        return Clock(received, node, boot=answer.boot)
    offset_s = round(answer.time - (sent + received) / 2, 9)
    return Clock(received, node, offset_s, round((received - sent) / 2, 9), answer.boot)


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
        self.numbers: dict[str, int] = {}
        """What agents call them -> their numbers, from 0."""
        self._told, self._told_at = 0, 0.0
        """Of how many ranks of the last one its plan tells, and since when."""

    def number(self, key: str) -> int:
        """The number of an attempt, which begins if nothing was heard of it yet; LATEST where it is called nothing."""
        if not key:
            return LATEST
        if key not in self.numbers:
            self._begin(key)
        elif len(self.facts.ranks) > self._told and time.monotonic() - self._told_at >= _TELL_S:
            self._tell(len(self.numbers) - 1)
        return self.numbers[key]

    def _begin(self, key: str) -> None:
        number = len(self.numbers)
        if number == 0:
            self.facts.met = True
            self.facts.ranks.clear()  # who was planned may not be who meets
        else:
            restarted = events.Restarted(time.time())
            self.writer.event(restarted)
            self.facts.add(restarted)
            self.writer.begin_attempt()
            self.facts.begin_attempt()
            self._tell(number - 1)
            for clock in self.clocks.values():
                self.writer.event(clock)
            self.observer.begins(number)
        self.numbers[key], self._told, self._told_at = number, 0, 0.0

    def _tell(self, number: int) -> None:
        """Put into the plan of an attempt who met there."""
        facts = self.facts.attempt(number)
        if facts.ranks and self.writer.plan:
            met = _met(self.writer.plan, facts, [*self.numbers][number])
            self.writer.tell_workers(met, _first_start(facts), number)
        if facts is self.facts:
            self._told, self._told_at = len(facts.ranks), time.monotonic()

    def end(self) -> None:
        """Put into the plan of each attempt who met there, and into the events of those before the last when it ended.

        Called when the run is over: of an earlier attempt something may be heard until then.
        """
        for number in self.numbers.values():
            facts = self.facts.attempt(number)
            if facts is not self.facts and not facts.duration_s:
                first = _first_start(facts) or time.time()
                last = max((rank.ended for rank in facts.ranks if rank.ended is not None), default=first)
                over = events.Over(last, max(0.0, last - first))
                self.writer.event(over, number)
                facts.add(over)
            self._tell(number)


def _first_start(facts: RunFacts) -> float | None:
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
    size = {"nnodes": len(nodes), "nproc_per_node": max(map(len, nodes.values())), "world_size": len(facts.ranks)}
    planned = {worker["rank"]: worker for worker in plan["workers"]}
    workers = []
    for rank in facts.ranks:
        known, group = planned.get(rank.rank, plan["workers"][0]), [*nodes].index(rank.node)
        variables = {
            "RANK": rank.rank,
            "LOCAL_RANK": rank.local_rank,
            "GROUP_RANK": group,
            "WORLD_SIZE": len(facts.ranks),
            "LOCAL_WORLD_SIZE": len(nodes[rank.node]),
            "GROUP_WORLD_SIZE": len(nodes),
            **{name.upper(): value for name, value in store.items()},
        }
        env = {
            name: str(variables.get(name, value))
            for name, value in known["env"].items()
            if not name.startswith(_UNKNOWN)
        }
        position = {"rank": rank.rank, "local_rank": rank.local_rank, "node_rank": group, "node": rank.node}
        workers.append({**known, **position, "env": env, "expected_code": rank.expected_code})
    return {**size, **store, "workers": workers}


NO_RUN = "node"
"""Stands for a message where the node is none for any run: an earlier one could not be cleaned up."""
BEFORE_THE_START = ("claim", "files", "prepare")
"""Messages whose refusal means that the run cannot begin."""
WHILE_IT_RUNS = ("run", "go", "ping")
"""Messages whose refusal means that the node does not have the run any more; `run`: its agent says so unasked."""
_FACTS = (
    agent.Started, agent.Note, agent.Named, agent.ThreadRaised, agent.Halted, agent.Exited, agent.Limited,
    agent.Joined, agent.LeftRunning, agent.Staged,
)  # fmt: skip
"""Messages that go into the record as they are."""


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
        self.clocks = Clocks(self._record_clock)
        self._whereabouts: tuple[int, Any] | None = None
        """Of which attempt, and where its ranks are."""
        self.addresses: dict[str, str] = {}
        """By address: the names of the nodes."""
        self.heard = 0
        """How many messages have arrived: whoever cleans its node, or sends traces, says something."""

    def collect(self, node: str, message: wire.Message | wire.Malformed) -> None:
        """Handle one message of a node's agent.

        Raises:
            ClusterBusy: somebody else has the node.
            NodeLost: the node is none for any run.
            RecordError: the record cannot be written.
        """
        self.heard += 1
        match message:
            case agent.Output(rank=agent.STARTER):
                self.writer.launcher_output(node, message.data)
            case agent.Output() if message.stream != agent.ANSWERS:
                attempt = self.attempts.number(message.attempt)
                self.writer.output(message.rank, message.stream, message.data, message.time, attempt)
                self.observer.output(message.rank, node, message.stream, message.data, message.time)
            case agent.Trace():
                self.writer.trace(message.rank, message.data, self.attempts.number(message.attempt))
            case agent.Stack():
                self.fact(message._replace(text=message.text or "(no Python stack)"))
            case agent.Connections():
                if message.peer in self.addresses:  # scripts may talk with anybody else, too
                    self.fact(message._replace(node=node, peer=self.addresses[message.peer]))
            case agent.Claimed():
                self.claimed.add(node)
                if node in self.claims_sent:
                    address = next((one for one, name in self.addresses.items() if name == node), "")
                    self.clocks.claimed(node, address, message, self.claims_sent[node])
            case agent.ClockReading():
                self.clocks.hear(node, message)
            case agent.Prepared():
                self.prepared.add(node)
            case agent.Finished():
                self.finished.add(node)
            case agent.Busy():
                raise ClusterBusy(
                    f"{node} is busy with run {message.holder} of {message.owner}, "
                    f"for {format_duration(message.age_s)}",
                    "wait until it ends, or use another cluster with --name",
                )
            case agent.Refused():
                self._refused(node, message)
            case wire.Malformed() if node in self.prepared:
                self.fact(events.Misunderstood(time.time(), node, message.reason))
            case wire.Malformed():  # nothing can be expected of such a node
                self.fact(events.Refusal(time.time(), node, f"{node} cannot be understood: {message.reason}"))
            case _ if isinstance(message, _FACTS):  # parts of the run act on others
                self.fact(message)
        self.listener(node, message)

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
        """Add one fact, to the record too."""
        last = self.attempts.number(getattr(event, "attempt", ""))
        lost = event.node if isinstance(event, events.NodeLost) else None
        for attempt, facts in enumerate(self.facts.earlier):
            if any(rank.node == lost and not rank.over for rank in facts.ranks):  # it had ranks of that one too
                self.writer.event(event, attempt)
                facts.add(event)
        self.writer.event(event, last)
        self.facts.attempt(last).add(event)
        if isinstance(event, agent.Exited) and event.rank != agent.STARTER:
            self.writer.settle(event.rank, attempt=last)
        if progress := self._progress_of(event):
            self.observer.progress(progress)

    def _progress_of(self, event: Event) -> str:
        """What an observer is told of a fact at once; of most, nothing."""
        match event:
            case agent.Named() if len(self.facts.named) == 1:  # of all ranks, the first
                find_named_backends = hook("named_backends")
                return find_named_backends(self.facts.named)[0].headline if find_named_backends else ""
            case events.FaultHealed():
                return f"{event.fault} is healed: {event.why}"
            case events.Fault():
                return f"{event.fault}, on purpose: {event.why or 'before the run'}"
            case events.NodeCame():
                return f"{event.node} takes part"
            case events.NodeTroubled():
                return f"{event.node} {event.how or 'works again'}"
            case agent.Halted():
                how = f"was stopped by {event.signal}" if event.signal else "goes on"
                return f"rank {event.rank} ({event.node}) {how}"
        return ""

    def _record_clock(self, clock: Clock) -> None:
        """Record a clock; what is told later on is in the record of each attempt too."""
        self.attempts.clocks[clock.node] = clock
        last = len(self.facts.earlier)
        for number in range(0 if clock.monotonic_s else last, last + 1):
            self.writer.event(clock, number)
            self.facts.attempt(number).add(clock)

    def _refused(self, node: str, message: agent.Refused) -> None:
        """An agent does not act on something: it cannot start the run, or has it no more."""
        if message.what == NO_RUN:
            raise NodeLost(
                f"{node} cannot take a run: {message.reason}", "make a new cluster with `lab down` and `lab up`"
            )
        if message.what in BEFORE_THE_START:
            self.fact(events.Refusal(time.time(), node, f"{node} could not start the run: {message.reason}"))
        elif message.what in WHILE_IT_RUNS and node not in self.finished:
            self.fact(events.Refusal(time.time(), node, f"{node} gave the run up: {message.reason}"))
            self.finished.add(node)
        elif message.what == "check":
            self.fact(agent.Exited(-1, time.time(), node, error=f"the check could not start: {message.reason}"))
        elif message.what in ("finish", "fetch"):
            self.finished.add(node)
