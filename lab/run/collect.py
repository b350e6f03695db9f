"""Turns what the agents of a run say into facts, into its record, and into what an observer sees."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lab.diagnosis.facts import RunFacts
from lab.errors import ClusterBusy, NodeLost
from lab.node.messages import wire
from lab.node.messages.agent import (
    ANSWERS,
    STARTER,
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
from lab.record.events import Clock, Event, Fault, FaultHealed, Misunderstood, NodeCame, NodeTroubled, Refusal
from lab.record.write import RecordWriter
from lab.run.attempts import Attempts
from lab.run.clocks import Clocks
from lab.run.observe import Observer
from lab.run.outputs import Outputs
from lab.run.starters import Starters
from lab.run.stdin import Stdin
from lab.words import format_duration

if TYPE_CHECKING:
    from lab.run.companion import Companion
    from lab.trace.now import Place, Whereabouts

NO_RUN = "node"
"""Stands for a message where the node is none for any run: an earlier one could not be cleaned up."""
_FACTS = (Started, Note, Named, ThreadRaised, Halted, Exited, Limited, Joined, LeftRunning, Staged)
"""Messages that go into the record as they are."""
BEFORE_THE_START = ("claim", "files", "prepare")
"""Messages whose refusal means that the run cannot begin."""
WHILE_IT_RUNS = ("run", "go", "ping")
"""Messages whose refusal means that the node does not have the run any more; `run`: its agent says so unasked."""


class Collector:
    """Collects the facts of one run, for its record and for whoever watches it."""

    def __init__(
        self,
        facts: RunFacts,
        writer: RecordWriter,
        observer: Observer,
        outputs: Outputs,
        stdin: Stdin,
        starters: Starters,
    ) -> None:
        self.facts = facts
        self.starters = starters
        self.writer = writer
        self.observer = observer
        self.outputs = outputs
        self.stdin = stdin
        self.claimed: set[str] = set()
        self.prepared: set[str] = set()
        self.finished: set[str] = set()
        """Nodes that have answered so."""
        self.claims_sent: dict[str, float] = {}
        """Node -> Unix time at which it was sent its claim."""
        self.attempts = Attempts(facts, writer, observer)
        self.clocks = Clocks(self._tell_clock)
        self._whereabouts: tuple[int, Whereabouts] | None = None
        """Of which attempt, and where its ranks are."""
        self.companions: Sequence[Companion] = ()
        """What goes along with the run, and hears what its agents say."""
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
        if isinstance(message, Output) and message.stream == ANSWERS:
            self.stdin.hear(message)
        elif isinstance(message, Output) and message.rank == STARTER:
            self.starters.listen(node, message)
            self.writer.launcher_output(node, message.data)
        elif isinstance(message, Output):
            attempt = self.attempts.number(message.attempt)
            self.writer.output(message.rank, message.stream, message.data, message.time, attempt)
            self.observer.output(message.rank, node, message.stream, message.data, message.time)
        elif isinstance(message, Trace):
            self.writer.trace(message.rank, message.data, self.attempts.number(message.attempt))
        elif isinstance(message, _FACTS):
            self.fact(message)
        elif isinstance(message, Stack):
            self.fact(message._replace(text=message.text or "(no Python stack)"))
        elif isinstance(message, Connections):
            if message.peer in self.addresses:  # scripts may talk with anybody else, too
                self.fact(message._replace(node=node, peer=self.addresses[message.peer]))
        elif isinstance(message, Claimed):
            self._claimed(node, message)
        elif isinstance(message, TimeTold):
            self.clocks.hear(node, message)
        elif isinstance(message, Prepared):
            self.prepared.add(node)
        elif isinstance(message, Finished):
            self.finished.add(node)
        elif isinstance(message, Made):
            self.outputs.tell(node, message)
        elif isinstance(message, Piece):
            self.outputs.take(node, message)
        elif isinstance(message, (Taken, Breakpoint, Continued)):
            self.stdin.hear(message)
        elif isinstance(message, Busy):
            raise ClusterBusy(
                f"{node} is busy with run {message.holder} of {message.owner}, for {format_duration(message.age_s)}",
                "wait until it ends, or use another cluster with --name",
            )
        elif isinstance(message, Refused):
            self._refused(node, message)
        elif not isinstance(message, (Cleaning, Done, Reached)):  # these are for what goes along
            self._misunderstood(node, message)
        for companion in self.companions:
            companion.hear(message)

    def where(self) -> dict[int, Place]:
        """Where the ranks that run are, as far as their traces have come."""
        attempt = len(self.facts.earlier)
        if self._whereabouts is None or self._whereabouts[0] != attempt:
            from lab.record.read import Record
            from lab.trace.now import Whereabouts

            self._whereabouts = attempt, Whereabouts(Record(path=self.writer.path))
        places = self._whereabouts[1].look()
        return {rank: place for rank, place in places.items() if not self.facts.rank(rank).over}

    def fact(self, event: Event) -> None:
        """Take one fact, into the record too."""
        if isinstance(event, Exited) and event.rank == STARTER:
            self.starters.hear(event)
        attempt = self.attempts.number(getattr(event, "attempt", ""))
        for one in (*self.attempts.left_open(event), attempt):
            self.writer.event(event, one)
            self.facts.attempt(one).add(event)
        if isinstance(event, Exited) and event.rank != STARTER:
            self.writer.settle(event.rank, attempt=attempt)
            self.stdin.hear(event)
        if isinstance(event, Named) and len(self.facts.named) == 1:  # of all ranks, the first
            from lab.diagnosis.ends import find_named_backends

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
