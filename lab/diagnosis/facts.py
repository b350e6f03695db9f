"""What is known of a run: while it goes on from what its agents say, afterwards from its record; both by `add`."""

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
"""From one node to another, by their names."""


@dataclass
class Network:
    """What is known of the connections between nodes, by who told it and of whom."""

    latest: dict[Way, agent.Connections] = field(default_factory=dict)
    stuck: dict[Way, agent.Connections] = field(default_factory=dict)
    """The last report of data that nobody acknowledged, where no later one tells that it came through after all."""
    answers: dict[Way, bool] = field(default_factory=dict)
    """Whether the other kernel answered when it was asked last."""

    addresses: dict[str, str] = field(default_factory=dict)
    """By address: the names of the nodes."""
    ahead: dict[str, float] = field(default_factory=dict)
    """By node: seconds that its clock is ahead of the lab's, where it has another one."""

    def add(self, report: agent.Connections | events.Clock, *, over: bool) -> None:
        """Add a report; once it is `over`, connections are closed, and what is missing then means nothing."""
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
        """Whether nothing got through between two nodes when the run was over, or nothing that was answered."""
        ways = (one, other), (other, one)
        silent = any(way in self.stuck or self.answers.get(way) is False for way in ways)
        return silent and not any(self.answers.get(way) for way in ways)

    def silent_s(self, one: str, other: str) -> float:
        """For how long at least nothing was acknowledged between two nodes."""
        reports = (self.stuck.get(way) for way in ((one, other), (other, one)))
        return max((report.silent_s for report in reports if report is not None), default=0.0)

    def arrives(self, one: str, other: str) -> bool:
        """Whether all that one node sent again and again did reach the other, and only the answers were lost."""
        sent, came = self.latest.get((one, other)), self.latest.get((other, one))
        if sent is None or came is None or (one, other) not in self.stuck or came.number != sent.number:
            return False
        return bool(sent.sent_again and sent.stuck and came.segments_in >= sent.segments_out)


_LISTS = {agent.LeftRunning: "left_running", agent.Named: "named", agent.Limited: "limits"}
"""By kind of event: the list of facts that it is added to."""
DETECTION_LAG_S = 1.0
"""A rank's peers may feel its end as much earlier than its agent sees it."""


@dataclass
class RunFacts:
    """What is known of a run; where its launcher began the workers anew, of the last attempt."""

    ranks: list[RankFacts]
    """In order."""
    parents: list[RankFacts] = field(default_factory=list)
    """Workers that are no ranks, because those are processes that scripts started; known once the run is over."""
    started: dict[int, RankFacts] = field(default_factory=dict)
    """Processes that scripts started and that joined a process group, by their number."""
    joined: dict[int, agent.Joined] = field(default_factory=dict)
    """How they did; by the same number."""
    left_running: list[agent.LeftRunning] = field(default_factory=list)
    timeout_s: float = 0.0
    starting_s: float = 0.0
    """How long launchers had taken to start the first rank when the time limit passed, which does not count."""
    memory_bytes: int | None = None
    """Memory limit of a node."""
    lost_nodes: list[events.NodeLost] = field(default_factory=list)
    troubled: dict[str, events.NodeTroubled] = field(default_factory=dict)
    """By name of a node: what kept it from working when the run was over."""
    network: Network = field(default_factory=Network)
    timed_out: bool = False
    interrupted: bool = False
    engine_lost: str = ""
    """Why the engine is thought to be gone."""
    refused: str = ""
    """Why an agent would not start the run."""
    duration_s: float = 0.0
    check: RankFacts | None = None
    """The scenario's own check, if it ran."""
    staged: agent.Staged | None = None
    """What the check was not given of what the ranks left, if there was anything."""
    starters: list[RankFacts] = field(default_factory=list)
    """Processes of a launcher that start workers; empty where the lab starts them itself."""
    limits: list[agent.Limited] = field(default_factory=list)
    """Limits that were reached; of the same one, the last counts."""
    named: list[agent.Named] = field(default_factory=list)
    """What ranks named that is not the backend of the run."""
    not_shipped: dict[str, events.NotShipped] = field(default_factory=dict)
    """By name: modules that ranks did not find, and that are files of the person who started the run."""
    restarted: bool = False
    """Whether the launcher began the workers anew after this attempt."""
    came: list[str] = field(default_factory=list)
    """Nodes that were taken in while it went on, for which a launcher may have begun the workers anew."""
    met: bool = False
    """Whether a launcher says who the ranks are: those that met, whatever was planned; it goes on without others."""
    earlier: list[RunFacts] = field(default_factory=list)
    """Of the attempts before this one, in order."""
    expected_codes: Mapping[int, int] = field(default_factory=dict, compare=False)
    """By rank: exit codes other than 0 that are no failure."""

    @property
    def time_limit_text(self) -> str:
        """The time limit that passed, and what of the time until then it does not count."""
        limit = format_duration(self.timeout_s)
        launching = round(self.starting_s)
        return f"{limit}, and {format_duration(launching)} in which launchers started" if launching else limit

    def attempt(self, number: int) -> RunFacts:
        """The facts of an attempt; -1: of the last one."""
        return self if number in (-1, len(self.earlier)) else self.earlier[number]

    def begin_attempt(self) -> None:
        """Put what is known aside, as that of an earlier attempt; of the ranks of the next one nothing is known yet."""
        self.earlier.append(replace(self, troubled=dict(self.troubled), starters=[], earlier=[]))
        self.ranks, self.lost_nodes, self.limits, self.not_shipped, self.restarted = [], [], [], {}, False
        self.came, self.network = [], Network(addresses=self.network.addresses, ahead=self.network.ahead)
        self.started, self.joined = {}, {}

    def rank(self, number: int) -> RankFacts:
        """The facts of a rank, made where there are none yet; -1 is the scenario's own check."""
        if agent.is_joined(number):
            return self.started.setdefault(number, RankFacts(rank=number))
        if number < 0:
            self.check = self.check or RankFacts(rank=-1, node="node0", local_rank=-1)
            return self.check
        position = bisect_left(self.ranks, number, key=lambda rank: rank.rank)
        if position == len(self.ranks) or self.ranks[position].rank != number:
            code = self.expected_codes.get(number, 0)
            self.ranks.insert(position, RankFacts(rank=number, expected_code=code))
        return self.ranks[position]

    def add(self, event: events.Event) -> None:
        """Add what an event tells."""
        event = events.by_lab_clock(event, self.network.ahead)
        if getattr(event, "rank", None) == agent.STARTER:
            self._add_of_starter(event)
        elif isinstance(event, (agent.Started, agent.Note, agent.Stack, agent.ThreadRaised, agent.Exited)):
            rank = self.rank(event.rank)
            if rank is self.check and rank.over:  # one that took too long is killed later on
                return
            self.met |= isinstance(event, agent.Started) and bool(event.attempt)
            _add(event, rank)
            if self.timed_out and isinstance(event, agent.Exited) and event.rank != -1:
                rank.stopped = True  # by the lab, or because it lost a peer that was
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
        """Have processes that scripts started be ranks; workers that are none any more become their parents."""
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
    """What is known of a run before it begins."""
    facts = RunFacts(ranks=[], timeout_s=plan.timeout_s or 0.0, memory_bytes=memory_bytes)
    facts.expected_codes = {worker.rank: worker.expected_code for worker in plan.workers if worker.expected_code}
    for worker in plan.workers:
        rank = facts.rank(worker.rank)
        rank.node, rank.local_rank = worker.node, worker.local_rank
    return facts


def read_facts(record: Record) -> RunFacts:
    """What a record knows of its run: the facts that its verdict was made from."""
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
        rank.stack, rank.stack_time = event.text, event.time
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
    """The ends of ranks as `result.json` tells them, where the events are lost."""
    facts.timed_out = result.verdict == "hung"
    for end in result.ranks:
        rank = facts.rank(end.rank)
        rank.node, rank.code, rank.ended = rank.node or end.node, end.exit_code, end.duration_s or 0.0
        _add_end(end, rank)


# -- What is known of one rank of a run, before anybody judges it


@dataclass
class RankFacts:
    """What is known of one rank. Times are Unix time of the lab's clock."""

    rank: int
    node: str = ""
    local_rank: int = 0
    started: float | None = None
    ended: float | None = None
    code: int | None = None
    signal: str | None = None
    out_of_memory: bool = False
    memory_bytes: int | None = None
    """What it held when it was killed for lack of memory, where its agent could tell."""
    stopped: bool = False
    """Whether the lab stopped it: it was alive until then."""
    halted: str = ""
    """The signal that had stopped it when the run was over, and that nothing had let it go on after."""
    node_lost: bool = False
    """Whether its node went away while it ran."""
    error: str = ""
    traceback: str = ""
    raised: float | None = None
    """When it raised; earlier than when it ended."""
    stack: str = ""
    """As faulthandler wrote it when it crashed, or when the run did not go on."""
    stack_time: float | None = None
    """When its stack was asked for."""
    notes: dict[str, Any] = field(default_factory=dict)
    threads: list[agent.ThreadRaised] = field(default_factory=list)
    """Of its threads, those that ended by an error."""
    expected_code: int = 0
    """The exit code that is no failure; -9 stands for an end by signal 9."""
    parent: int | None = None
    """The worker whose script started it; None of a worker."""
    outlived: bool = False
    """Whether what started it ended as expected, however it ended itself."""

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
        """Whether it ended, other than expected, without being stopped."""
        ended = self.ended is not None and not (self.stopped or self.outlived)
        return ended and signed_exit_code(self.code, self.signal) != self.expected_code

    @property
    def left(self) -> bool:
        """Whether it ended as expected, without being stopped."""
        return self.ended is not None and not self.stopped and not self.failed


def signed_exit_code(code: int | None, name: str | None) -> int | None:
    """An exit code, or -9 for an end by SIGKILL, as `subprocess` and torchrun write it; None where neither is known."""
    number = signal.Signals.__members__.get(name or "")
    return code if number is None else -number
