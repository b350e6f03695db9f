"""Turn messages of agents into facts, write them into the record, and report them to an observer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lab.errors import ClusterBusy, MachineLacks, NodeLost
from lab.feature import find_hook, find_view
from lab.node.messages import agent, wire
from lab.node.recorder.journal import clock_id
from lab.record import events
from lab.record.record_files import shows_progress
from lab.record.write import LATEST, RecordWriter
from lab.words import format_duration

if TYPE_CHECKING:
    from lab.diagnosis.facts import RankFacts, RunFacts


class Observer:
    """Watch a run; every method returns quickly. This class does nothing."""

    def progress(self, text: str) -> None:
        """Report an operation that takes a moment."""

    def output(self, rank: int, node: str, stream: int, data: bytes, when: float) -> None:
        """Report output of a rank: any bytes, not necessarily whole lines."""

    def tick(self, elapsed_s: float, running: int, where: Callable[[float, int], str]) -> None:
        """Report about once a second that the run continues. `where` describes what ranks do, by time and columns."""

    def begins(self, attempt: int) -> None:
        """Report that the launcher restarted the workers; output is now mostly of this attempt.

        The first attempt is 0.
        """

    def terminal(self, rank: int | None, message: str, *, raw: bool) -> None:
        """Report that a rank, or no rank, now has the terminal.

        Args:
            rank: that has it; None: no rank.
            message: what to tell the user.
            raw: whether control sequences of the rank may act on the terminal. Its output there arrives as stream 3.
        """


EXCHANGES = 8
"""Number of exchanges in a row; the one that took the least time is the most precise."""


class Clocks:
    """The clocks of the nodes of one run. Nodes on this machine's kernel share its clock and are not asked.

    Args:
        report: called with each clock that was measured.
    """

    def __init__(self, report: Callable[[events.Clock], object]) -> None:
        self.ask: Callable[[str, agent.AskTime], object] = lambda *_: None
        """Sends a message to the agent of a node."""
        self._report = report
        self._foreign: dict[str, events.Clock] = {}
        """By node: its clock when it was claimed, if it differs from this machine's."""
        self._exchanges: dict[str, list[events.Clock]] = {}
        """By node that is being asked: the measurements so far."""

    def claimed(self, node: str, address: str, answer: agent.Claimed, sent: float) -> None:
        """Add the first exchange: the answer of a node to a claim that was sent at the Unix time `sent`."""
        clock = clock_of(node, answer, sent, time.time())._replace(address=address)
        self._report(clock)
        self._foreign.pop(node, None)
        self._exchanges.pop(node, None)
        if clock.error_s:
            self._foreign[node] = clock
            self.compare(answer.run, [node])

    def compare(self, run: str, nodes: Iterable[str]) -> None:
        """Begin exchanges with nodes that have their own clock and are not being asked."""
        for node in (self._foreign.keys() & set(nodes)) - self._exchanges.keys():
            self._exchanges[node] = []
            self.ask(node, agent.AskTime(run, time.time()))

    def handle_message(self, node: str, answer: agent.ClockReading) -> None:
        """Handle an answer: ask the node again, or report the most precise measurement."""
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
        """Return whether none of these nodes is being asked."""
        return self._exchanges.keys().isdisjoint(nodes)


def clock_of(node: str, answer: agent.Claimed, sent: float, received: float) -> events.Clock:
    """Return a node's clock offset from this machine, and its error; `sent` and `received` are Unix times here."""
    if answer.boot.partition(" ")[0] == clock_id().partition(" ")[0]:
        return events.Clock(received, node, boot=answer.boot)
    offset_s = round(answer.time - (sent + received) / 2, 9)
    return events.Clock(received, node, offset_s, round((received - sent) / 2, 9), answer.boot)


_WRITE_S = 0.2
"""Write who has met so far at most once in this many seconds."""
_UNKNOWN = ("ROLE_", "TORCHELASTIC_")
"""Prefixes of variables that a launcher sets as it likes."""


class Attempts:
    """Number the attempts of a run by the agents' keys for them, in the order of their first appearance.

    A run whose agents send no key has only one attempt, and costs nothing here.
    """

    def __init__(self, facts: RunFacts, writer: RecordWriter, observer: Observer) -> None:
        self.facts, self.writer, self.observer = facts, writer, observer
        self.clocks: dict[str, events.Clock] = {}
        """By node: the clock that each attempt's record repeats."""
        self.numbers: dict[str, int] = {}
        """Keys of the agents -> numbers of attempts, from 0."""
        self._written_ranks, self._written_at = 0, 0.0
        """Number of ranks in the last attempt's plan, and the monotonic time at which they were written."""

    def number(self, key: str) -> int:
        """Return the number of an attempt, and begin it if its key is new; LATEST for an empty key."""
        if not key:
            return LATEST
        if key not in self.numbers:
            self._begin_attempt(key)
        elif len(self.facts.ranks) > self._written_ranks and time.monotonic() - self._written_at >= _WRITE_S:
            self._write_workers(len(self.numbers) - 1)
        return self.numbers[key]

    def _begin_attempt(self, key: str) -> None:
        if (number := len(self.numbers)) == 0:
            self.facts.met = True
            self.facts.ranks.clear()  # other ranks than planned may meet
        else:
            restarted = events.Restarted(time.time())
            self.writer.event(restarted)
            self.facts.add(restarted)
            self.writer.begin_attempt()
            self.facts.begin_attempt()
            self._write_workers(number - 1)
            for clock in self.clocks.values():
                self.writer.event(clock)
            self.observer.begins(number)
        self.numbers[key], self._written_ranks, self._written_at = number, 0, 0.0

    def _write_workers(self, number: int) -> None:
        """Write into the plan of an attempt which ranks met."""
        facts = self.facts.attempt(number)
        if facts.ranks and self.writer.plan:
            met = _describe_workers(self.writer.plan, facts, [*self.numbers][number])
            self.writer.write_workers(met, _first_start(facts), number)
        if facts is self.facts:
            self._written_ranks, self._written_at = len(facts.ranks), time.monotonic()

    def finish(self) -> None:
        """Write into the plan of each attempt which ranks met, and into earlier events when the attempt ended.

        Called after the run: messages of an earlier attempt may arrive until then.
        """
        for number in self.numbers.values():
            if (facts := self.facts.attempt(number)) is not self.facts and not facts.duration_s:
                first = _first_start(facts) or time.time()
                last = max((rank.ended for rank in facts.ranks if rank.ended is not None), default=first)
                over = events.Over(last, max(0.0, last - first))
                self.writer.event(over, number)
                facts.add(over)
            self._write_workers(number)


def _first_start(facts: RunFacts) -> float | None:
    """Return the Unix time at which the first worker started."""
    return min((rank.started for rank in facts.ranks if rank.started is not None), default=None)


def _describe_workers(plan: Mapping[str, Any], facts: RunFacts, key: str) -> dict[str, Any]:
    """Return the fields of an attempt's plan about its workers: those that met, on their nodes."""
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
        planned = {name: value for name, value in known["env"].items() if not name.startswith(_UNKNOWN)}
        env = {name: str(variables.get(name, value)) for name, value in planned.items()}
        position = {"rank": rank.rank, "local_rank": rank.local_rank, "node_rank": group, "node": rank.node}
        workers.append({**known, **position, "env": env, "expected_code": rank.expected_code})
    return {**size, **store, "workers": workers}


NO_RUN = "node"
"""Stands for a message if the node accepts no run, because an earlier one could not be cleaned up."""
BEFORE_THE_START = ("folder", "content", "prepare")
"""Messages whose refusal means that the run cannot begin."""
WHILE_IT_RUNS = ("run", "go", "ping")
"""Messages whose refusal means that the node no longer has the run. An agent sends `run` unasked."""
_FACTS = (
    agent.Started, agent.Note, agent.Named, agent.ThreadRaised, agent.Halted, agent.Exited, agent.Limited,
    agent.Joined, agent.Staged,
)  # fmt: skip
"""Messages that go into the record unchanged."""


_ACTS = (agent.Started, agent.Joined, agent.Output, agent.Note, agent.InputDelivered, agent.Exited)


class Collector:
    """Collect the facts of one run, for its record and its observer.

    Args:
        facts: of the run.
        writer: of the record.
        observer: receives what happens.
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
        """Node -> Unix time at which its claim was sent."""
        self.attempts = Attempts(facts, writer, observer)
        self.clocks = Clocks(self._record_clock)
        self._whereabouts: tuple[int, Any] | None = None
        """Number of an attempt, and the view of what its ranks do."""
        self.addresses: dict[str, str] = {}
        """Names of nodes by address."""
        self.progressed = time.monotonic()
        """When a rank last began, printed, made a call, or ended."""
        self.probed: dict[int, agent.Stack] | None = {}
        """Receives the stacks of ranks that may continue; None: they are facts."""
        self.probing = False
        """Whether ranks that may continue are asked now; what their nodes say of connections then is no fact either."""
        self.message_count = 0
        """Number of received messages; an agent that cleans its node or sends traces sends some."""

    def collect(self, node: str, message: agent.Message | wire.Malformed) -> None:
        """Handle one message of a node's agent.

        Raises:
            ClusterBusy: another run has the node.
            NodeLost: the node accepts no run.
            RecordError: the record cannot be written.
        """
        self.message_count += 1
        is_progress = shows_progress(message.data) if isinstance(message, agent.Trace) else isinstance(message, _ACTS)
        if is_progress:
            self.progressed = time.monotonic()
        match message:
            case agent.Output(rank=agent.STARTER):
                self.writer.launcher_output(node, message.data)
            case agent.Output() if message.stream != agent.ANSWERS:
                attempt = self.attempts.number(message.attempt)
                self.writer.output(message.rank, message.stream, message.data, message.time, attempt)
                self.observer.output(message.rank, node, message.stream, message.data, message.time)
            case agent.Trace():
                self.writer.trace(message.rank, message.data, self.attempts.number(message.attempt))
            case agent.Stack() if self.probed is not None:
                self.probed[message.rank] = message
            case agent.Connections() if self.probing:
                pass
            case agent.Stack():
                self.fact(message._replace(text=message.text or "(no Python stack)"))
            case agent.Connections():
                if message.peer in self.addresses:  # scripts may connect to other addresses too
                    self.fact(message._replace(node=node, peer=self.addresses[message.peer]))
            case agent.Claimed():
                self.claimed.add(node)
                if node in self.claims_sent:
                    address = next((one for one, name in self.addresses.items() if name == node), "")
                    self.clocks.claimed(node, address, message, self.claims_sent[node])
            case agent.ClockReading():
                self.clocks.handle_message(node, message)
            case agent.Prepared():
                self.prepared.add(node)
            case agent.Finished():
                self.finished.add(node)
            case agent.Busy():
                age = format_duration(message.age_s)
                why = f"{node} is busy with run {message.holder} of {message.owner}, for {age}"
                raise ClusterBusy(why, "wait until it ends, or use another cluster with --name")
            case agent.Refused():
                self._refused(node, message)
            case wire.Malformed() if node in self.prepared:
                self.fact(events.Misunderstood(time.time(), node, message.reason))
            case wire.Malformed():  # such a node cannot prepare the run
                self.fact(events.Refusal(time.time(), node, f"cannot read a message of {node}: {message.reason}"))
            case _ if isinstance(message, _FACTS):  # the listener handles the others
                self.fact(message)
        self.listener(node, message)

    def where(self, elapsed_s: float, columns: int) -> str:
        """Describe in one line what running ranks do; empty if unknown."""
        attempt = len(self.facts.earlier)
        if self._whereabouts is None or self._whereabouts[0] != attempt:
            from lab.record.read import Record

            make = find_view("whereabouts")
            self._whereabouts = attempt, make(Record(path=self.writer.path)) if make else None
        whereabouts = self._whereabouts[1]
        return whereabouts.line(elapsed_s, columns, lambda rank: not self.facts.rank(rank).over) if whereabouts else ""

    def fact(self, event: events.Event) -> None:
        """Add one fact, and write it into the record."""
        last = self.attempts.number(getattr(event, "attempt", ""))
        lost = event.node if isinstance(event, events.NodeLost) else None
        for attempt, facts in enumerate(self.facts.earlier):
            if any(rank.node == lost and not rank.over for rank in facts.ranks):  # it had ranks of that attempt
                self.writer.event(event, attempt)
                facts.add(event)
        self.writer.event(event, last)
        self.facts.attempt(last).add(event)
        if isinstance(event, agent.Exited) and event.rank != agent.STARTER:
            self.writer.flush(event.rank, attempt=last)
        if progress := self._progress_of(event):
            self.observer.progress(progress)

    def _progress_of(self, event: events.Event) -> str:
        """Return the progress text for a fact; empty for most facts."""
        match event:
            case agent.Named() if len(self.facts.named) == 1:  # only for the first of all ranks
                find_named_backends = find_hook("named_backends")
                return find_named_backends(self.facts.named)[0].headline if find_named_backends else ""
            case events.FaultHealed():
                return f"{event.fault} is healed: {event.why}"
            case events.Fault():
                return f"{event.fault}, on purpose: {event.why or 'before the run'}"
            case events.NodeCame():
                return f"{event.node} joined"
            case events.NodeTroubled():
                return f"{event.node} {event.how or 'works again'}"
            case agent.Halted():
                how = f"was stopped by {event.signal}" if event.signal else "continues"
                return f"rank {event.rank} ({event.node}) {how}"
        return ""

    def _record_clock(self, clock: events.Clock) -> None:
        """Record a clock; later measurements go into the record of each attempt."""
        self.attempts.clocks[clock.node] = clock
        last = len(self.facts.earlier)
        for number in range(0 if clock.monotonic_s else last, last + 1):
            self.writer.event(clock, number)
            self.facts.attempt(number).add(clock)

    def _refused(self, node: str, message: agent.Refused) -> None:
        """Handle a refusal: the agent cannot start the run, or no longer has it."""
        if message.what == NO_RUN:
            hint = "make a new cluster with `lab down` and `lab up`"
            raise NodeLost(f"{node} cannot accept a run: {message.reason}", hint)
        if message.what == "claim":  # it is the first message, and an agent that cannot read it is an old one
            why = message.reason.partition(";")[0]
            raise NodeLost(f"{node} is of another version of the lab: {why}")
        if message.what == agent.LACKS:
            raise MachineLacks(f"{node} cannot start the run: {message.reason}")
        if message.what in BEFORE_THE_START:
            self.fact(events.Refusal(time.time(), node, f"{node} could not start the run: {message.reason}"))
        elif message.what in WHILE_IT_RUNS and node not in self.finished:
            self.fact(events.Refusal(time.time(), node, f"{node} ended the run: {message.reason}"))
            self.finished.add(node)
        elif message.what == "check":
            self.fact(agent.Exited(-1, time.time(), node, error=f"the check could not start: {message.reason}"))
        elif message.what in ("finish", "fetch"):
            self.finished.add(node)
