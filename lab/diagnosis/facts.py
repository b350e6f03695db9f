"""Facts of a run: from messages of agents during the run, from its record afterwards.

Both go through `RunFacts.add`.
"""

from __future__ import annotations

import signal
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lab.node.messages import agent
from lab.record import events
from lab.words import format_duration

if TYPE_CHECKING:
    from lab.plan.plan import Plan
    from lab.record.read import Record, RecordedPlan, Started
    from lab.record.result import RankResult, Result

Way = tuple[str, str]
"""From one node to another, by name."""


@dataclass
class Network:
    """Reports about the connections between nodes, by reporting node and peer."""

    latest: dict[Way, agent.Connections] = field(default_factory=dict)
    stuck: dict[Way, agent.Connections] = field(default_factory=dict)
    """The last report of unacknowledged data, unless a later report shows that it arrived."""
    answers: dict[Way, bool] = field(default_factory=dict)
    """Whether the peer's kernel answered the latest probe."""

    addresses: dict[str, str] = field(default_factory=dict)
    """Address -> name of the node."""
    ahead: dict[str, float] = field(default_factory=dict)
    """By node: seconds that its clock is ahead of the lab's; only nodes with a separate clock."""

    def add(self, report: agent.Connections | events.Clock, *, over: bool) -> None:
        """Add a report; once the run is `over`, closed connections are normal and their data is ignored."""
        if isinstance(report, events.Clock):
            self.addresses |= {report.address: report.node} if report.address else {}
            self.ahead.pop(report.node, None)
            self.ahead |= {report.node: report.offset_s} if report.error_s else {}
            return
        way = report.node, report.peer
        self.latest |= {way: report} if report.number else {}
        if not over:
            self.answers.pop(way, None)
        if report.answers is not None:
            self.answers.setdefault(way, report.answers)
        if report.stuck:
            self.stuck[way] = report
        elif not over and way in self.stuck and report.number >= self.stuck[way].number:
            del self.stuck[way]

    def lost(self, one: str, other: str) -> bool:
        """Return whether nothing was acknowledged or answered between two nodes when the run was over."""
        ways = (one, other), (other, one)
        silent = any(way in self.stuck or self.answers.get(way) is False for way in ways)
        return silent and not any(self.answers.get(way) for way in ways)

    def silent_s(self, one: str, other: str) -> float:
        """Return for how many seconds, at least, nothing was acknowledged between two nodes."""
        reports = (self.stuck.get(way) for way in ((one, other), (other, one)))
        return max((report.silent_s for report in reports if report is not None), default=0.0)

    def arrives(self, one: str, other: str) -> bool:
        """Return whether all retransmitted data of one node reached the other.

        If so, only the acknowledgments were lost.
        """
        sent, came = self.latest.get((one, other)), self.latest.get((other, one))
        if sent is None or came is None or (one, other) not in self.stuck or came.number != sent.number:
            return False
        return bool(sent.sent_again and sent.stuck and came.segments_in >= sent.segments_out)


_LISTS = {agent.Named: "named", agent.Limited: "limits"}
"""Kind of event -> the list of facts that it is added to."""
DETECTION_LAG_S = 1.0
"""Seconds by which peers may notice the end of a rank before its agent does."""


@dataclass
class RunFacts:
    """What is known of a run; if its launcher restarted the workers, of the last attempt."""

    ranks: list[RankFacts]
    """Sorted by rank."""
    parents: list[RankFacts] = field(default_factory=list)
    """Workers whose scripts started the ranks, so that they are no ranks themselves; known once the run is over."""
    started: dict[int, RankFacts] = field(default_factory=dict)
    """By number: processes that scripts started and that joined a process group."""
    joined: dict[int, agent.Joined] = field(default_factory=dict)
    """By the same number: how they joined."""
    timeout_s: float = 0.0
    starting_s: float = 0.0
    """Seconds that launchers took to start the first rank; the time limit does not count them."""
    memory_bytes: int | None = None
    """Memory limit of a node."""
    lost_nodes: list[events.NodeLost] = field(default_factory=list)
    troubled: dict[str, events.NodeTroubled] = field(default_factory=dict)
    """By node: what kept it from working when the run was over."""
    network: Network = field(default_factory=Network)
    timed_out: bool = False
    ended_early: bool = False
    """Whether the lab ended the run before the time limit, because the ranks waited for something that cannot come."""
    stalled_s: float = 0.0
    """Seconds without progress after which it did so; 0: that was certain."""
    interrupted: bool = False
    engine_lost: str = ""
    """Why the engine seems to be gone."""
    refused: str = ""
    """Why an agent refused to start the run."""
    duration_s: float = 0.0
    check: RankFacts | None = None
    """The scenario's own check, if it ran."""
    staged: agent.Staged | None = None
    """Files of the ranks that the check did not get, if any."""
    starters: list[RankFacts] = field(default_factory=list)
    """Launcher processes that start workers; empty if the lab starts them itself."""
    limits: list[agent.Limited] = field(default_factory=list)
    """Limits that were reached; for the same limit, the last report counts."""
    named: list[agent.Named] = field(default_factory=list)
    """Backends that ranks named and that differ from the run's backend."""
    not_shipped: dict[str, events.NotShipped] = field(default_factory=dict)
    """By name: modules that ranks could not import, and that are files of the user."""
    restarted: bool = False
    """Whether the launcher restarted the workers after this attempt."""
    came: list[str] = field(default_factory=list)
    """Nodes that joined during the run; a launcher may have restarted the workers for them."""
    met: bool = False
    """Whether a launcher decides who the ranks are: those at its rendezvous, regardless of the plan."""
    earlier: list[RunFacts] = field(default_factory=list)
    """Facts of earlier attempts, in order."""
    expected_codes: Mapping[int, int] = field(default_factory=dict, compare=False)
    """By rank: exit codes other than 0 that are expected."""

    @property
    def time_limit_text(self) -> str:
        """The time limit that passed, and the time for starting that it does not count."""
        limit = format_duration(self.timeout_s)
        launching = round(self.starting_s)
        return f"{limit}, plus {format_duration(launching)} in which launchers started" if launching else limit

    @property
    def how_it_ended(self) -> str:
        """The beginning of the reason of a run that did not end by itself."""
        ended = "the lab ended the run after" if self.ended_early else "the run did not end within"
        stalled = f", because nothing had progressed for {format_duration(self.stalled_s)}" if self.stalled_s else ""
        return f"{ended} {self.time_limit_text}{stalled}"

    def attempt(self, number: int) -> RunFacts:
        """Return the facts of an attempt; -1 is the last one."""
        return self if number in (-1, len(self.earlier)) else self.earlier[number]

    def begin_attempt(self) -> None:
        """Move the current facts to `earlier`, and start the next attempt without facts of ranks."""
        self.earlier.append(replace(self, troubled=dict(self.troubled), starters=[], earlier=[]))
        self.ranks, self.lost_nodes, self.limits, self.not_shipped, self.restarted = [], [], [], {}, False
        self.came, self.network = [], Network(addresses=self.network.addresses, ahead=self.network.ahead)
        self.started, self.joined = {}, {}

    def rank(self, number: int) -> RankFacts:
        """Return the facts of a rank, and create them if necessary; -1 is the scenario's own check."""
        if agent.is_joined(number):
            return self.started.setdefault(number, RankFacts(rank=number))
        if number < 0:
            self.check = self.check or RankFacts(rank=-1, node="node0", local_rank=-1)
            return self.check
        position = bisect_left(self.ranks, number, key=lambda rank: rank.rank)
        if position == len(self.ranks) or self.ranks[position].rank != number:
            self.ranks.insert(position, RankFacts(rank=number, expected_code=self.expected_codes.get(number, 0)))
        return self.ranks[position]

    def add(self, event: events.Event) -> None:
        """Add the facts of an event."""
        event = events.by_lab_clock(event, self.network.ahead)
        if getattr(event, "rank", None) == agent.STARTER:
            self._add_of_starter(event)
        elif isinstance(event, (agent.Started, agent.Note, agent.Stack, agent.ThreadRaised, agent.Exited)):
            rank = self.rank(event.rank)
            if rank is self.check and rank.over:  # a check that took too long is killed later
                return
            self.met |= isinstance(event, agent.Started) and bool(event.attempt)
            _add(event, rank)
            if self.timed_out and isinstance(event, agent.Exited) and event.rank != -1:
                rank.stopped = True  # by the lab, or because the lab stopped one of its peers
        elif isinstance(event, agent.Joined):
            self.joined[event.rank] = event
            rank = self.rank(event.rank)
            rank.node, rank.started = event.node, event.time
        elif type(event) in _LISTS:
            getattr(self, _LISTS[type(event)]).append(event)
        elif isinstance(event, agent.Halted) and not self.timed_out:
            self.rank(event.rank).halted = event.signal
        elif isinstance(event, events.NodeTroubled) and not self.timed_out:
            self.troubled.pop(event.node, None)
            self.troubled |= {event.node: event} if event.how else {}
        elif isinstance(event, (events.NodeLost, events.EngineLost)):
            everybody = (*self.ranks, *self.started.values(), *self.starters)
            lost = [rank for rank in everybody if rank.node == event.node and not rank.over]
            for rank in lost:
                rank.node_lost = True
            if isinstance(event, events.EngineLost):
                self.engine_lost = event.reason
            elif not self.met or any(rank.rank != agent.STARTER for rank in lost):
                self.lost_nodes.append(event)
        elif isinstance(event, events.NodeCame):
            self.came.append(event.node)
        elif isinstance(event, (agent.Connections, events.Clock)):
            self.network.add(event, over=self.timed_out or any(rank.failed for rank in self.ranks))
        elif isinstance(event, agent.Staged):
            self.staged = event
        elif isinstance(event, events.Refusal):
            self.refused = self.refused or event.reason
        elif isinstance(event, events.TimedOut):
            self.timed_out = True
            self.ended_early, self.stalled_s = event.early, event.stalled_s
            self.timeout_s = event.timeout_s or self.timeout_s
            self.starting_s = event.starting_s
        elif isinstance(event, (events.Cancelled, events.Restarted)):
            self.interrupted |= isinstance(event, events.Cancelled)
            self.restarted |= isinstance(event, events.Restarted)
        elif isinstance(event, events.NotShipped):
            self.not_shipped[event.module] = event
        elif isinstance(event, events.Over):
            self.duration_s = event.duration_s

    def assign_started_ranks(self, started: Started) -> None:
        """Replace the ranks by processes that scripts started.

        Workers that are no longer ranks become their parents.
        """
        if not started.ranks or self.parents:
            return
        workers, ranks = {rank.rank: rank for rank in self.ranks}, list[RankFacts]()
        for one in started.ranks:
            if one.process is None:
                ranks.append(workers.pop(one.worker))
            else:
                ranks.append(self.started.setdefault(one.process, RankFacts(rank=one.rank, node=one.node)))
                ranks[-1].rank, ranks[-1].parent = one.rank, one.worker
        own = [one for one in (*workers.values(), *ranks) if one.parent is None]
        for rank in ranks:
            starter = next((one for one in own if one.rank == rank.parent and one is not rank), None)
            rank.outlived = starter is not None and starter.left
        self.ranks, self.parents = sorted(ranks, key=lambda rank: rank.rank), list(workers.values())

    def _add_of_starter(self, event: events.Event) -> None:
        if isinstance(event, agent.Started):
            starter = RankFacts(rank=agent.STARTER, node=event.node, local_rank=agent.STARTER, started=event.time)
            self.starters.append(starter)
        elif isinstance(event, agent.Exited):
            for starter in [one for one in self.starters if one.node == event.node and one.ended is None][:1]:
                _add(event, starter)
                starter.stopped |= self.timed_out


def begin_facts(plan: Plan | RecordedPlan, memory_bytes: int | None) -> RunFacts:
    """Return the facts of a run before it begins."""
    facts = RunFacts(ranks=[], timeout_s=plan.timeout_s or 0.0, memory_bytes=memory_bytes)
    facts.expected_codes = {worker.rank: worker.expected_code for worker in plan.workers if worker.expected_code}
    for worker in plan.workers:
        rank = facts.rank(worker.rank)
        rank.node, rank.local_rank = worker.node, worker.local_rank
    return facts


def read_facts(record: Record) -> RunFacts:
    """Read the facts that the verdict was made from out of a record."""
    plan = record.plan()
    facts = begin_facts(plan, plan.memory_bytes)
    known = [*record.events()]
    for event in known:
        facts.add(event)
    if not known and record.complete:
        _add_result(record.result(), facts)
    facts.earlier = [read_facts(attempt) for attempt in record.earlier_attempts().values()]
    if (started := record.started()) is not None:
        facts.assign_started_ranks(started)
    return facts


def _add(event: agent.Started | agent.Note | agent.Stack | agent.ThreadRaised | agent.Exited, rank: RankFacts) -> None:
    rank.node = rank.node or event.node
    if isinstance(event, agent.Started):
        rank.started = event.time
    elif isinstance(event, agent.Note):
        rank.notes[event.name] = event.value
    elif isinstance(event, agent.Stack):
        rank.stack, rank.stack_time, rank.load = event.text, event.time, event.load
    elif isinstance(event, agent.ThreadRaised):
        rank.threads.append(event)
    else:
        rank.ended, rank.raised, rank.code = event.time, event.raised, event.code
        rank.out_of_memory, rank.memory_bytes = event.out_of_memory, event.memory_bytes
        _add_end(event, rank)


def _add_end(end: agent.Exited | RankResult, rank: RankFacts) -> None:
    rank.signal, rank.stopped = end.signal, end.stopped
    rank.error, rank.traceback = end.error, end.traceback
    rank.stack = rank.stack or end.stack


def _add_result(result: Result, facts: RunFacts) -> None:
    """Add the ends of ranks from `result.json`, for records whose events are lost."""
    facts.timed_out = result.verdict in ("hung", "timeout")
    for end in result.ranks:
        rank = facts.rank(end.rank)
        rank.node, rank.code, rank.ended = rank.node or end.node, end.exit_code, end.duration_s or 0.0
        _add_end(end, rank)


# -- facts of one rank


@dataclass
class RankFacts:
    """Facts of one rank. Times are Unix times of the lab's clock."""

    rank: int
    node: str = ""
    local_rank: int = 0
    started: float | None = None
    ended: float | None = None
    code: int | None = None
    signal: str | None = None
    out_of_memory: bool = False
    memory_bytes: int | None = None
    """Memory that it held when it was killed for lack of memory, if its agent knew."""
    stopped: bool = False
    """Whether the lab stopped it; it was alive until then."""
    halted: str = ""
    """The signal that had stopped it when the run was over, and after which nothing continued it."""
    node_lost: bool = False
    """Whether its node was lost while it ran."""
    error: str = ""
    traceback: str = ""
    raised: float | None = None
    """When it raised the error; this is before it ended."""
    stack: str = ""
    """From faulthandler: when it crashed, or when the run hung."""
    stack_time: float | None = None
    """When the agent requested the stack."""
    load: float = 0.0
    """Share of the time in which it ran or waited for a core then."""
    notes: dict[str, Any] = field(default_factory=dict)
    threads: list[agent.ThreadRaised] = field(default_factory=list)
    """Its threads that ended with an error."""
    expected_code: int = 0
    """The exit code that counts as success; -9 means an end by signal 9."""
    parent: int | None = None
    """The worker whose script started it; None for a worker."""
    outlived: bool = False
    """Whether the worker that started it ended as expected, no matter how the process itself ended."""

    @property
    def over(self) -> bool:
        """Whether it can report nothing more."""
        return self.ended is not None or self.node_lost

    @property
    def alive(self) -> bool:
        """Whether it ran until the lab stopped it, or until the end of the record."""
        return self.stopped or not self.over

    @property
    def failed(self) -> bool:
        """Whether it ended by itself with an unexpected exit code."""
        ended = self.ended is not None and not (self.stopped or self.outlived)
        return ended and signed_exit_code(self.code, self.signal) != self.expected_code

    @property
    def left(self) -> bool:
        """Whether it ended by itself with the expected exit code."""
        return self.ended is not None and not self.stopped and not self.failed


def signed_exit_code(code: int | None, name: str | None) -> int | None:
    """Return an exit code, or the negative signal number as in `subprocess` and torchrun; None if neither is known."""
    number = signal.Signals.__members__.get(name or "")
    return code if number is None else -number
