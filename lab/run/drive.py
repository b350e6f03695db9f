"""Drive one run from a plan to a result: claim nodes, ship files, start workers, follow, restart, clean up, judge."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Any, cast

from lab.diagnosis.facts import RankFacts, RunFacts, begin_facts
from lab.engine.ownership import current_owner
from lab.engine.protocol import Channel, FileAccess, PowerControl, require_capability
from lab.errors import LabError, NodeLost, RecordError
from lab.feature import find_hook, find_hook_of
from lab.node.messages import agent
from lab.node.users import GROUP, first_uid_of
from lab.plan.cluster import RUNNING, ClusterInfo, Node
from lab.plan.plan import HOST, Plan
from lab.record import events
from lab.record.layout import OUTPUTS, TRACE
from lab.run.agent_channels import AgentChannels
from lab.run.collect import Collector
from lab.run.lock import LEASE_S, nodes_lock
from lab.run.options import SELDOM_S, Job, Stdin
from lab.run.ship import ANNOUNCED_BYTES, LIMIT_BYTES, Outputs, Shipment, warnings_of
from lab.run.snapshot import Snapshot, read_snapshot
from lab.spec.launching import LAB, Starter, find_launcher
from lab.spec.load import dump_scenario
from lab.words import format_duration, name_nodes

if TYPE_CHECKING:
    from lab.record.result import Result

_FINISH_DEADLINE_S = 5.0
_FETCH_DEADLINE_S = 20.0
"""A node or this machine may write large files to its disk before it continues."""
_CANCEL_DEADLINE_S = 0.5
_CLOCKS_DEADLINE_S = 0.5
"""Comparing clocks takes less; after this the known offsets stay."""
_ANSWER_DEADLINE_S = 60.0
_MEETING_S = 3.0
"""From then on, every second, the traces are asked whether ranks wait in vain for each other in init_process_group."""
_FAILURE_GRACE_S = 0.6
"""Seconds that the other ranks get to report their own end after the first failure."""
_CULPRIT_GRACE_S = 0.6
"""If all failed ranks only lost a peer, seconds that this peer gets to report why it failed."""
_TERM_GRACE_S = 0.3
_STOP_DEADLINE_S = 3.0
_STACK_DEADLINE_S = 2.0
_FAULT_DEADLINE_S = 60.0
_CHECK_DEADLINE_S = 60.0
_START_S = 60.0
"""The time limit counts from the first rank's start; before it, at most this many seconds of starters are free."""
_STDOUT = 1
_LONGEST_LINE_BYTES = 1 << 16


class Starters:
    """The starters of a run: on which nodes they run, what they request, and whether they have ended.

    Without starters, the agents start the workers.

    Args:
        plan: of the run.
        ask: sends a message to the agent of a node.
    """

    def __init__(self, plan: Plan, ask: Callable[[str, agent.Prepare], object]) -> None:
        self._plan, self._ask = plan, ask
        self._launcher = find_launcher(plan.launcher.name)
        self._asked = Counter(starter.node for starter in plan.starters)
        self._ended: Counter[str] = Counter()
        self._workers: dict[str, tuple[agent.WorkerStart, ...]] = {}
        """Planned workers, by node."""
        self._unfinished: dict[str, bytes] = defaultdict(bytes)
        """The unfinished last line of the first starter's standard output, by node."""
        self.failed = False
        """Whether a starter failed by itself."""
        self._took_s: float | None = None

    def __bool__(self) -> bool:
        return bool(self._asked)

    def prepare(self, node: str, prepare: agent.Prepare) -> agent.Prepare:
        """Add the starters of a node to the message that prepares it; a node without any only gets ready."""
        if not self:
            return prepare
        if self._plan.ranks_planned:
            self._workers[node] = prepare.workers
        self._ended[node] = 0
        return self._with(prepare, [one for one in self._plan.starters if one.node == node])

    def _with(self, prepare: agent.Prepare, starters: Sequence[Starter]) -> agent.Prepare:
        starts = (
            agent.WorkerStart(agent.STARTER, agent.STARTER, dict(one.env), list(one.argv), modules=one.modules)
            for one in starters
        )
        workers = self._workers.get(starters[0].node, ()) if starters else ()
        return prepare._replace(workers=workers, starters=tuple(starts))

    def handle_message(self, node: str, message: Any) -> None:
        """Handle output of a starter, or its end."""
        if isinstance(message, agent.Exited):
            self._ended[message.node] += 1
            self.failed |= not message.stopped and (message.code != 0 or message.signal is not None)
        elif isinstance(message, agent.Output) and message.stream == _STDOUT:
            self._start_requested(node, message.data)

    def _start_requested(self, node: str, printed: bytes) -> None:
        """Start the starters on other nodes that this node's starter requests in its output."""
        if (starter := next((one for one in self._plan.starters if one.node == node), None)) is None:
            return
        *lines, rest = (self._unfinished[node] + printed).split(b"\n")
        self._unfinished[node] = rest[-_LONGEST_LINE_BYTES:]
        for line in lines:
            requested = self._launcher.find_requested_starter(starter, line.decode("utf-8", "replace"))
            if requested is not None and requested.node in self._workers:
                self._asked[requested.node] += 1
                self._ask(requested.node, self._with(agent.Prepare(self._plan.run, ()), [requested]))

    def took_s(self, began: float, ranks: Sequence[RankFacts]) -> float:
        """Return the seconds from that monotonic time until the first rank started, or until now."""
        if self._took_s is not None:
            return self._took_s
        passed_s = min(time.monotonic() - began, _START_S) if self else 0.0
        if not self or any(rank.started is not None for rank in ranks):
            self._took_s = passed_s
        return passed_s

    @property
    def ending(self) -> bool:
        """Whether one has ended, so that the others end soon."""
        return any(self._ended.values())

    def are_over(self, alive: Collection[str]) -> bool:
        """Return whether all starters have ended, apart from those on lost nodes."""
        return all(self._ended[node] >= asked for node, asked in self._asked.items() if node in alive)


class Driver:
    """Drives one run.

    Args:
        job: the plan, the cluster, and the options.
        channels: to the agents of the nodes of the run.
        stdin: source of the ranks' standard input.
        snapshot: of the script's folder; None: no script is shipped.
    """

    def __init__(self, job: Job, channels: Sequence[Channel], stdin: Stdin, snapshot: Snapshot | None) -> None:
        self.job = job
        self.plan = job.plan
        """Plan of the current attempt."""
        self.stdin, self._snapshot = stdin, snapshot
        self.outputs = Outputs(job.options.outputs or job.writer.path / OUTPUTS, job.observer.progress)
        """Receives the files that the run creates."""
        self.facts = begin_facts(job.plan, job.cluster.limits.memory_bytes)
        """Facts of the run; those known before it begins are already set."""
        self.began = 0.0
        """Monotonic time at which the workers started; 0: they never did."""
        self.collector = Collector(self.facts, job.writer, job.observer, self._handle_message)
        self.agents = AgentChannels(job.plan.run, job.engine, channels, self.collector, self._tick, stdin.poll)
        self.shipment = Shipment(snapshot, job.plan.run, self._ship, job.observer.progress) if snapshot else None
        self._last_shipped = 0.0
        """Monotonic time at which files were sent last."""
        self.starters = Starters(job.plan, self.agents.send)
        self.attempt = ""
        """See `Started`."""
        self._restarts = 0
        self._least_nodes = job.plan.launcher.least_nodes(job.plan.nnodes)
        """Fewest nodes with which the launcher continues."""
        self._next_meeting_check = inf if job.companions or job.plan.starters or not job.plan.trace.on else _MEETING_S
        """Seconds after the start."""
        watch = None if job.companions or not job.plan.trace.on or not job.options.stall_s else find_hook("standstill")
        self._standstill = watch and watch(job.options.stall_s, self.agents, self.collector)
        self._stalled_s = 0.0
        """See `TimedOut`."""
        self._added_channels: list[Channel] = []
        """Channels to nodes that joined during the run."""

    def _handle_message(self, node: str, message: Any) -> None:
        """Pass a message on to the parts of the run that may need it."""
        if getattr(message, "rank", None) == agent.STARTER:
            self.starters.handle_message(node, message)
        else:
            self.outputs.handle_message(node, message)
            self.stdin.handle_message(message)
            if self.shipment is not None:
                self.shipment.handle_message(node, message)
        for companion in self.job.companions:
            companion.handle_message(message)

    def drive(self) -> RunFacts:
        """Run the plan until it ends for any reason; no process or file of it stays in a node.

        Raises:
            ClusterBusy: another run uses a node.
            NodeLost: a node was lost before the run began.
            RecordError: the record cannot be written; the run was cancelled.
        """
        try:
            for node in list(self.agents.alive):
                self._claim(node)
            self._prepare_all()
            if not self._cannot_begin():
                self._start_workers()
                import_module("lab.run.outcome")  # import it while the ranks are busy
                if self._snapshot is not None:
                    self._snapshot.save()
                self._wait_for_ranks()
                while self._may_restart():
                    self._restart_workers()
                    self._wait_for_ranks()
                if not (self.facts.timed_out or self._failed()):
                    self._check()
        except KeyboardInterrupt:
            with suppress(KeyboardInterrupt):  # a second one ends the run at once
                if self.began and not self._are_all_over():
                    self._collect_stacks(_CANCEL_DEADLINE_S)
            self.agents.send_all(agent.Stop(self.plan.run, hard=True))
            self.collector.fact(events.Cancelled(time.time()))
            self._note_duration()
        finally:
            self.stdin.stop_reading()
            for companion in self.job.companions:
                companion.finish()
            self._clean_nodes()
            for channel in self._added_channels:
                channel.close()
        return self.facts

    # -- before the start

    def _claim(self, node: str) -> None:
        claim = agent.Claim(
            run=self.plan.run,
            owner=current_owner(),
            lease_s=LEASE_S,
            cold=self.plan.cold,
            trace=self.plan.trace.on,
            trace_values=self.plan.trace.values,
            output_bytes=self.plan.output_bytes,
            outputs_bytes=0 if self.plan.outputs is None else ANNOUNCED_BYTES // self.plan.nnodes,
            **_needed_torch(self.plan),
            **_choose_users(self.plan, self.job.cluster),
        )
        self.collector.claims_sent[node] = time.time()
        self.agents.send(node, claim)
        for companion in self.job.companions:
            companion.claim(self.agents, node)

    def _ship(self, node: str, *messages: agent.Message) -> None:
        self.agents.send(node, *messages)
        self.agents.keep_alive()  # a large folder may take longer than the lease of the nodes
        self._last_shipped = time.monotonic()

    def _prepare(self, node: str, *, ships: bool = True) -> None:
        """Ship the scenario's folder to a node, start its workers up to their gate, and start the store."""
        plan = self.plan
        if ships and self.shipment is not None:
            self.shipment.begin(node)
        starts = (self.stdin.start(worker) for worker in plan.workers if worker.node == node)
        workers = tuple(start._replace(attempt=self.attempt) for start in starts)
        held = tuple(trigger for companion in self.job.companions for trigger in companion.triggers)
        prepare = self.starters.prepare(node, agent.Prepare(plan.run, workers, triggers=held))
        if node == HOST:
            store = agent.Store(plan.master_addr, plan.master_port, plan.world_size)
            emptied = self.job.cluster.shared if plan.fresh and not self._restarts else ""  # a restart keeps files
            prepare = prepare._replace(store=store, emptied=emptied)
        self.agents.send(node, prepare)

    def _prepare_all(self) -> None:
        if self.plan.launcher.settings is not None and self.plan.launcher.name == LAB:
            self._plan_attempt()
            self.collector.attempts.numbers[self.attempt] = 0  # its ranks are the planned ones
        nodes = set(self.agents.alive)
        for node in nodes:
            self._prepare(node)
            self.agents.keep_alive()  # hundreds of nodes may take longer than their lease

        def is_prepared() -> bool:
            return self.collector.prepared >= nodes or self._cannot_begin() or bool(self.agents.silent_nodes)

        self._last_shipped = time.monotonic()
        if not self.agents.listen(is_prepared, lambda: self._last_shipped + _ANSWER_DEADLINE_S):
            missing = name_nodes(nodes - self.collector.prepared)
            waited = f"waited {format_duration(_ANSWER_DEADLINE_S)} for {missing} to prepare the run"
            raise NodeLost(waited, "see `lab status` and `lab doctor`")
        gone = [(lost.node, lost.how) for lost in self.facts.lost_nodes]
        silent = [(node, self.agents.troubles[node].how) for node in sorted(self.agents.silent_nodes)]
        for node, how in (*gone, *silent):
            raise NodeLost(f"{node} {how} before the run began", "make a new cluster with `lab down` and `lab up`")

    def _cannot_begin(self) -> bool:
        return bool(self.facts.refused or self.facts.lost_nodes or self.facts.engine_lost)

    # -- nodes that join during the run

    @property
    def has_enough_nodes(self) -> bool:
        """Whether the launcher continues with the remaining nodes."""
        return len(self.agents.alive) >= self._least_nodes and HOST in self.agents.alive

    def _missing_nodes(self) -> set[str]:
        return {worker.node for worker in self.job.plan.workers} - self.agents.alive.keys()

    @property
    def _is_changing(self) -> bool:
        """Whether a companion is stopping or starting nodes now."""
        return any(companion.pending for companion in self.job.companions)

    def add_nodes(self) -> None:
        """Add nodes of the run that run again or were late.

        Adds none if the run is about to end, or while a node is stopped or started.
        """
        if self._least_nodes == self.plan.nnodes or not self._missing_nodes():
            return
        if self.starters.ending or self.facts.timed_out or self._failed() or self._is_changing:
            return
        if nodes_lock(self.job.engine.name, self.job.cluster.name).holder() is not None:
            return
        try:
            clusters = self.job.engine.find(self.job.cluster.name)
        except LabError:  # the run's own nodes show how it ends
            return
        self._add_running_nodes(clusters)

    def restart_lost_nodes(self) -> None:
        """Start the lost nodes, and let them take part again.

        Raises:
            LabError: a node does not start.
        """
        if missing := self._missing_nodes():
            lost = [node for node in self.job.cluster.nodes if node.name in missing]
            require_capability(self.job.engine, PowerControl).start(self.job.cluster, lost, announce=lambda _: None)
            self._add_running_nodes(self.job.engine.find(self.job.cluster.name))

    def _add_running_nodes(self, clusters: Sequence[ClusterInfo]) -> None:
        missing = self._missing_nodes()
        for node in clusters[0].nodes if clusters else ():
            if node.name in missing and node.state == RUNNING:
                self._add_node(node)

    def _add_node(self, node: Node) -> None:
        try:
            (channel,) = self.job.engine.connect(self.job.cluster, [node])
        except LabError:  # the node was lost again
            return
        self._added_channels.append(channel)
        self.agents.add(channel)
        for answered in (self.collector.claimed, self.collector.prepared, self.collector.finished):
            answered.discard(node.name)
        self.collector.fact(events.NodeCame(time.time(), node.name))
        self._claim(node.name)
        self._prepare(node.name)
        self.agents.send(node.name, agent.Go(self.plan.run))

    # -- while it runs

    def _start_workers(self) -> None:
        self.began = time.monotonic()
        for companion in self.job.companions:
            companion.follow_run(self.agents, self.collector.fact, self.add_nodes)
        self.agents.send_all(agent.Go(self.plan.run))
        if self.starters and self.plan.ranks_planned:  # a rank cannot read before it has started

            def have_started() -> bool:
                there = all(rank.started is not None for rank in self.facts.ranks)
                return there or self._are_all_over() or self._failed()

            until = min(self.began + _ANSWER_DEADLINE_S, self._deadline())
            self.agents.listen(have_started, lambda: until)
        self.stdin.start_reading(self.agents)

    def _wait_for_ranks(self) -> None:
        """Listen until all ranks have ended, one has failed, or the time limit passes; then stop the others."""

        def is_over() -> bool:
            return self._are_all_over() or self._failed()

        in_time = self.agents.listen(lambda: is_over() or self._wait_in_vain() or self._is_stuck(), self._deadline)
        self.stdin.stop_reading()
        if not in_time or not is_over():
            self.agents.poll_nodes()
            starting_s = self.starters.took_s(self.began, self.facts.ranks)
            took_s = round(time.monotonic() - self.began, 1) if in_time else self.stdin.allowed_s
            self.collector.fact(events.TimedOut(time.time(), took_s, starting_s, in_time, self._stalled_s))
            self._collect_stacks()
        elif not (self._are_all_over() or self.facts.engine_lost or self.facts.refused):  # the others may end too
            self.agents.poll_nodes()
            self.agents.listen_for(self._are_all_over, _FAILURE_GRACE_S, patient=True)
            if not self.agents.listen_for(self._is_explained, _CULPRIT_GRACE_S, patient=True):
                self._collect_stacks()
        self._note_duration()
        for hard, patience_s in ((False, _TERM_GRACE_S), (True, _STOP_DEADLINE_S)):
            if not self._are_all_over():
                self.agents.send_all(agent.Stop(self.plan.run, hard))
                self.agents.listen_for(self._are_all_over, patience_s, patient=True)

    def _wait_in_vain(self) -> bool:
        """Return whether traces prove that every rank waits in init_process_group for what cannot come."""
        if time.monotonic() - self.began < self._next_meeting_check or self.stdin.held or self.facts.joined:
            return False
        self._next_meeting_check += 1.0
        cannot_meet = find_hook("cannot_meet")
        sizes = [file.stat().st_size for file in (self.job.writer.path / TRACE).glob("*")]
        if cannot_meet is None or sum(sizes) > len(self.facts.ranks) * _LONGEST_LINE_BYTES:
            self._next_meeting_check = inf
            return False
        from lab.diagnosis.evidence import Evidence  # imported late: short runs do not need them
        from lab.record.read import Record

        evidence = Evidence(facts=self.facts, record=Record(path=self.job.writer.path))
        in_vain: bool | None = cannot_meet(evidence, {node.address for node in self.job.cluster.nodes})
        if in_vain is None:
            self._next_meeting_check = inf
        return bool(in_vain)

    def _is_stuck(self) -> bool:
        """Return whether nothing has gone on for the limit of the run's options, and ranks wait for each other."""
        if self._standstill and self.stdin.held:
            self._standstill.postpone()
        elif self._standstill and self._standstill.has_begun(self.facts, self.job.writer.path):
            self._stalled_s = self.job.options.stall_s or 0.0
        return bool(self._stalled_s)

    def _deadline(self) -> float:
        """Return the monotonic time limit; it moves while no rank has started, or while ranks are held."""
        if self.stdin.held:
            return time.monotonic() + SELDOM_S
        held_s = self.stdin.held_s + sum(companion.held_s for companion in self.job.companions)
        return self.began + self.starters.took_s(self.began, self.facts.ranks) + self.plan.timeout_s + held_s

    def _is_explained(self) -> bool:
        """Return whether a rank failed for its own reason, or no rank is left that could explain the failure."""
        from lab.diagnosis.errors import lost_a_peer  # imported late: a passing run does not need it

        ended = [rank for rank in self.facts.ranks if rank.ended is not None]
        explained = any(not rank.failed or not lost_a_peer(rank) for rank in ended)
        return explained or self._are_all_over() or bool(self.facts.lost_nodes or self.facts.engine_lost)

    def _collect_stacks(self, deadline_s: float = _STACK_DEADLINE_S) -> None:
        self.collector.probed = None
        self.agents.send_all(agent.Stacks(self.plan.run))
        ranks = self.facts.ranks
        self.agents.listen_for(lambda: all(rank.stack or self._is_over(rank) for rank in ranks), deadline_s)

    def _failed(self) -> bool:
        if self.facts.engine_lost or self.facts.refused or not self.has_enough_nodes:
            return True
        return self.starters.failed or (self.plan.ranks_planned and any(rank.failed for rank in self.facts.ranks))

    def _are_all_over(self) -> bool:
        are_over = not self.starters or self.starters.are_over(self.agents.alive.keys() - self.collector.finished)
        return not self.agents.alive or (are_over and all(map(self._is_over, self.facts.ranks)))

    def _is_over(self, rank: RankFacts) -> bool:
        """Return whether a rank cannot send any more, or not before its node works again."""
        if rank.over or rank.node in self.collector.finished or (self.starters and rank.started is None):
            return True
        return rank.node in self.agents.silent_nodes and (self.facts.timed_out or self._failed())

    def _note_duration(self) -> None:
        if self.began:
            self.collector.fact(events.Over(time.time(), time.monotonic() - self.began))

    def _tick(self) -> None:
        if self.began:
            running = sum(not rank.over for rank in self.facts.ranks)
            self.add_nodes()
            self.job.observer.tick(time.monotonic() - self.began, running, self.collector.where)

    # -- the end of the run

    def _end_processes(self, wanted: tuple[str, ...] | None = None, *, but: str = "") -> None:
        """Have all agents, but one, end all processes of the run, and report the wanted files that these made.

        No agent cleans up before: a process may have files of another node open.
        """
        agents, outputs = self.agents, self.outputs
        outputs.nodes.clear()
        for node in agents.alive.keys() - {but}:  # the shared folder is removed with the nodes of the run
            shared = self.job.cluster.shared if node == HOST and self.job.cluster.run else ""
            agents.send(node, agent.Finish(agents.run, wanted, LIMIT_BYTES * (len(agents.alive) > 1), shared))
        self._await_nodes(self.collector.finished, outputs.nodes, but=but)

    def _clean_nodes(self) -> None:
        """Fetch the wanted files, and have every agent clean up."""
        agents, collector, interrupted = self.agents, self.collector, self.facts.interrupted
        nodes = collector.claimed & set(agents.alive) - agents.silent_nodes
        with suppress(LabError):
            if not interrupted:
                collector.clocks.compare(agents.run, nodes)
                agents.listen_for(lambda: collector.clocks.settled(nodes & set(agents.alive)), _CLOCKS_DEADLINE_S)
            self._end_processes(None if interrupted or not self.began else self.plan.outputs)
            try:
                chosen = self.outputs.choose()
                self.outputs.copy(self._read_files, agents.keep_alive)
                for node in collector.claimed - collector.finished:  # also one that was late to report
                    agents.send(node, agent.Fetch(agents.run, tuple(chosen.get(node, ()))))
                self._await_nodes(collector.finished, patience_s=_FETCH_DEADLINE_S)
            except KeyboardInterrupt:
                self.outputs.interrupt()
                agents.send_all(agent.Fetch(agents.run, ()))
                self._await_nodes(collector.finished)
        self.outputs.close()
        agents.close()

    def _read_files(self, node: str, path: str) -> Iterator[bytes]:
        """Return the pieces of a tar of a file of a node, read by the engine."""
        if node not in self.agents.alive:
            raise NodeLost(f"{node} was lost")
        return require_capability(self.job.engine, FileAccess).read_files(self.agents.alive[node].node, path)

    def _await_nodes(self, *answered: set[str], but: str = "", patience_s: float = 0.0) -> None:
        """Listen until each node, but one, has answered, as long as messages of the nodes keep arriving."""
        patience_s = _CANCEL_DEADLINE_S if self.facts.interrupted else patience_s or _FINISH_DEADLINE_S

        def done() -> bool:
            nodes = self.collector.claimed & self.agents.alive.keys() - self.agents.silent_nodes - {but}
            return nodes.issubset(set().union(*answered))

        while not done():
            count = self.collector.message_count
            with suppress(RecordError):  # data that cannot be written is lost; still wait for the nodes
                self.agents.listen_for(done, patience_s)
            if self.collector.message_count == count or self.facts.interrupted:
                break

    def _check(self) -> None:
        """Run the scenario's own check after all ranks have ended and before anything is removed."""
        reference, snapshot = self.plan.scenario.expect.check, self.job.options.check_folder
        if reference and HOST in self.agents.alive:
            from lab.run.outcome import results_for_check

            self._end_processes(but=HOST)
            facts, results = self.facts.rank(agent.CHECK), results_for_check(self.facts, self.job.writer)
            files = Shipment(snapshot, self.plan.run, self._ship).messages_for_check() if snapshot else ()
            env = dict(self.plan.workers[0].env)
            self.agents.send(HOST, *files, agent.Check(self.plan.run, reference, results, env))
            if not self.agents.listen_for(lambda: facts.over, _CHECK_DEADLINE_S):
                error = f"the check did not end within {format_duration(_CHECK_DEADLINE_S)}"
                self.collector.fact(agent.Exited(time=time.time(), rank=agent.CHECK, node=HOST, error=error))

    # -- the lab's own launcher restarts the workers after a failure

    def _plan_attempt(self) -> None:
        """Plan the next attempt, so that its workers meet only each other."""
        self.plan = make_attempt_plan(self.job.plan, self._restarts)
        self.attempt = f"{self._restarts}@{self.plan.master_addr}:{self.plan.master_port}"

    def _may_restart(self) -> bool:
        """Return whether the attempt failed, all ranks have ended, and a restart is left."""
        facts = self.facts
        hopeless = facts.timed_out or facts.interrupted or facts.refused or facts.engine_lost
        left = bool(self.attempt) and self._restarts < self.plan.launcher.max_restarts
        return left and self._failed() and not hopeless and HOST in self.agents.alive and self._are_all_over()

    def _restart_workers(self) -> None:
        """Restart all workers, after restarting lost nodes."""
        if self.job.companions:  # a fault that cuts a node's power completes before the node starts again
            self.agents.listen_for(lambda: not self._is_changing, _FAULT_DEADLINE_S)
        there = list(self.agents.alive)
        self._restarts += 1
        self._plan_attempt()
        self.collector.attempts.number(self.attempt)
        for worker in self.plan.workers:
            rank = self.facts.rank(worker.rank)
            rank.node, rank.local_rank = worker.node, worker.local_rank
        self.collector.prepared.clear()
        for node in sorted(there, key=lambda name: name != HOST):
            self._prepare(node, ships=False)
        try:
            self.restart_lost_nodes()
        except LabError as error:
            self.collector.fact(events.Refusal(time.time(), HOST, f"the restart of a node failed: {error.message}"))


def _choose_users(plan: Plan, cluster: ClusterInfo) -> Mapping[str, Any]:
    """Return the user of the workers in containers, as fields of a claim: one for all, or one for each rank of a node.

    Mounted folders of this machine are read and written as the calling user, unless that is root.
    """
    if (cluster.shape.volumes or cluster.shape.data) and os.getuid():
        return {"uid": os.getuid(), "gid": os.getgid()}
    first = first_uid_of(cluster.name) if cluster.shape.strict else agent.FIRST_UID
    return {"uid": first, "gid": GROUP} if plan.one_user else {"first_uid": first}


def _needed_torch(plan: Plan) -> Mapping[str, Any]:
    """Return what the run needs of torch, as fields of a claim; none if each supported version has it."""
    find_needed = find_hook_of(plan.scenario.extra, "needed_torch")
    return find_needed(plan.scenario, plan.backend or "gloo") if find_needed else {}


def make_attempt_plan(plan: Plan, number: int) -> Plan:
    """Return the plan of an attempt, numbered from 0; each attempt has its own store at the same port."""
    counts = {"TORCHELASTIC_RESTART_COUNT": str(number), "TORCHELASTIC_MAX_RESTARTS": str(plan.launcher.max_restarts)}
    return replace(plan, workers=tuple(worker._replace(env={**worker.env, **counts}) for worker in plan.workers))


def run_job(job: Job, channels: Sequence[Channel]) -> Result:
    """Run a plan on a cluster, through channels to the agents of its nodes, and judge it.

    Raises:
        LabError: the run could not begin, or its record could not be written; a run that began has a result.
    """
    plan, cluster, options, writer, observer = job.plan, job.cluster, job.options, job.writer, job.observer
    scenario = plan.scenario
    snapshot = None
    if not options.calls:
        data, all_files = cluster.shape.data.values(), options.all_files
        snapshot = read_snapshot(
            scenario.shipped, data, options.modules, all_files=all_files, progress=observer.progress
        )
        for warning in warnings_of(snapshot):
            observer.progress(warning)
    made = {"engine": cluster.engine, "cluster": cluster.name, "memory_bytes": cluster.limits.memory_bytes}
    description: dict[str, Any] = {**plan.to_json(), **made, "began": time.time()}
    for companion in job.companions:
        description |= companion.describe(writer.path)
    if options.turn is not None:
        description["turn"] = vars(options.turn)
    writer.describe(dump_scenario(scenario), scenario.script, description, scenario.script_path)
    if plan.launcher.name != (options.launcher or scenario.launcher.name):
        observer.progress(f"{plan.launcher.name} starts the ranks: {plan.backend} needs it")
    driver = Driver(job, channels, _choose_stdin(job), snapshot)
    try:
        facts = driver.drive()
    except BaseException:
        writer.close()
        raise
    driver.collector.attempts.finish()
    if any(rank.error.startswith(("ModuleNotFoundError", "FileNotFoundError")) for rank in facts.ranks):
        find_unshipped = find_hook("find_unshipped")
        for fact in find_unshipped(facts, scenario.shipped, snapshot) if find_unshipped else ():
            driver.collector.fact(fact)
    for companion in job.companions:
        companion.after_run()
    from lab.run.outcome import judge_run

    return judge_run(job, facts, driver.outputs)


def _choose_stdin(job: Job) -> Stdin:
    """Return the source of the ranks' standard input."""
    plan, options = job.plan, job.options
    if options.calls is not None:
        options.calls.timeout_s = plan.timeout_s
        return cast("Stdin", options.calls)
    has_terminal = options.terminal and os.isatty(0) and os.isatty(1)
    choose = find_hook("stdin") if options.stdin or plan.interactive is not None or has_terminal else None
    return (choose and choose(plan, job.observer, fed=options.stdin)) or Stdin()
