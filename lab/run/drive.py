"""A run on its nodes, from the claim to the end: claim, prepare, go, follow, begin anew, finish."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from lab.diagnosis.facts import RankFacts, RunFacts, begin_facts
from lab.engine.ownership import owner
from lab.engine.protocol import Channel, Engine
from lab.errors import LabError, NodeLost, RecordError
from lab.node.messages.agent import (
    ANSWERS,
    FIRST_UID,
    STARTER,
    Breakpoint,
    Claim,
    Continued,
    Exited,
    Fetch,
    Files,
    Finish,
    Go,
    Made,
    Output,
    Piece,
    Prepare,
    Stacks,
    Stop,
    Store,
    Taken,
)
from lab.node.users import GROUP, first_uid_of
from lab.plan.cluster import ClusterInfo
from lab.plan.plan import HOST, Plan
from lab.record import events
from lab.record.write import RecordWriter
from lab.run.collect import Collector
from lab.run.companion import SELDOM_S, Companion, Stdin
from lab.run.conversation import Conversation, Members
from lab.run.lock import LEASE_S
from lab.run.observe import Observer
from lab.run.outputs import LIMIT_BYTES, Outputs
from lab.run.ship import file_messages
from lab.run.starters import Starters
from lab.spec.launching import LAB
from lab.words import name_nodes

_FINISH_DEADLINE_S = 5.0
_CANCEL_DEADLINE_S = 0.5
_CLOCKS_DEADLINE_S = 0.5
"""Clocks are compared long before, or stay as they are known."""


_ANSWER_DEADLINE_S = 60.0
_FAILURE_GRACE_S = 0.6
"""After the first failure the others get this long to say what became of them."""
_CULPRIT_GRACE_S = 0.6
"""If all ranks that failed had only lost a peer, the one that left them gets this long to say why."""
_TERM_GRACE_S = 0.3
_STOP_DEADLINE_S = 3.0
_STACK_DEADLINE_S = 2.0
_FAULT_DEADLINE_S = 60.0


class Driver:
    """Drives one plan.

    Args:
        plan: what to run.
        cluster: where.
        engine: of the cluster.
        channels: to the agents of the nodes that take part.
        writer: of the record.
        observer: told what happens.
        stdin: what the ranks read.
        companions: what goes along with the run.
    """

    def __init__(
        self,
        plan: Plan,
        cluster: ClusterInfo,
        engine: Engine,
        channels: Sequence[Channel],
        writer: RecordWriter,
        observer: Observer,
        stdin: Stdin,
        companions: Sequence[Companion] = (),
    ) -> None:
        self.plan = plan
        self.cluster = cluster
        self.observer = observer
        self.stdin = stdin
        self.companions = companions
        self.facts = begin_facts(plan, cluster.limits.memory_bytes)
        """Those that are known before the run begins are filled in."""
        self.began = 0.0
        """Monotonic time at which the workers were let go; 0: never."""
        self.collector = Collector(self.facts, writer, observer, self._hear)
        self.agents = Conversation(plan.run, engine, channels, self.collector, self._tick, stdin.look)
        self.starters = Starters(plan, self.agents.say)
        self.members = Members(plan, engine, cluster, self.agents, self.collector, self._take_in)
        self.outputs: Outputs | None = None
        self.attempt = ""
        """See `Started`."""
        self.archive = b""
        """The scenario's folder."""
        self._planned = plan
        self._restarts = 0

    def _hear(self, node: str, message: Any) -> None:
        """Pass a message on to the parts of the run that it is for."""
        of_starter = getattr(message, "rank", None) == STARTER
        if isinstance(message, (Made, Piece)) and self.outputs is not None:
            self.outputs.hear(node, message)
        elif of_starter and isinstance(message, (Output, Exited)):
            self.starters.hear(node, message)
        elif isinstance(message, (Taken, Breakpoint, Continued, Exited)) or (
            isinstance(message, Output) and message.stream == ANSWERS
        ):
            self.stdin.hear(message)
        for companion in self.companions:
            companion.hear(message)

    def drive(
        self,
        archive: bytes,
        outputs: Outputs,
        *,
        meanwhile: Callable[[], object] = lambda: None,
        afterwards: Callable[[RunFacts], object] = lambda _: None,
    ) -> RunFacts:
        """Run the plan to its end, whatever end that is; nothing of it is left in any node.

        Args:
            archive: the scenario's folder, from `pack_folder`.
            outputs: takes the files that the run makes.
            meanwhile: called when the workers were let go; takes a few milliseconds.
            afterwards: called when all ranks have ended by themselves and their folder is still there.

        Raises:
            ClusterBusy: somebody else has a node.
            NodeLost: a node went away before the run began.
            RecordError: the record cannot be written; the run was cancelled.
        """
        try:
            self.archive, self.outputs = archive, outputs
            for node in list(self.agents.alive):
                self._claim(node)
            self._prepare_all()
            if not self._cannot_begin():
                self._go()
                meanwhile()
                self._follow()
                while self._may_restart():
                    self._begin_anew()
                    self._follow()
                if not (self.facts.timed_out or self._failed()):
                    afterwards(self.facts)
        except KeyboardInterrupt:
            self.agents.say_all(Stop(self.plan.run, hard=True))
            self.collector.fact(events.Cancelled(time.time()))
            self._note_duration()
        finally:
            self.stdin.end()
            for companion in self.companions:
                companion.finish()
            self._leave(outputs)
            self.members.close()
        return self.facts

    # -- before the start

    def _claim(self, node: str) -> None:
        claim = Claim(
            run=self.plan.run,
            owner=owner(),
            lease_s=LEASE_S,
            cold=self.plan.cold,
            trace=self.plan.trace.on,
            trace_values=self.plan.trace.values,
            output_bytes=self.plan.output_bytes,
            **users_of(self.plan, self.cluster),
        )
        self.collector.claims_sent[node] = time.time()
        self.agents.say(node, claim)
        for companion in self.companions:
            companion.claim(self.agents, node)

    def _prepare(self, node: str, files: Iterable[Files]) -> None:
        """Ship the scenario's folder to a node and have its workers wait at their gate, and the store listen."""
        plan = self.plan
        mine = [self.stdin.start(worker) for worker in plan.workers if worker.node == node]
        workers = tuple(worker._replace(attempt=self.attempt) for worker in mine)
        held = [trigger for companion in self.companions for trigger in companion.triggers]
        prepare = self.starters.prepare(node, Prepare(plan.run, workers, triggers=tuple(held)))
        if node == HOST:
            store = Store(plan.master_addr, plan.master_port, plan.world_size)
            emptied = self.cluster.shared if self.plan.fresh and not self._restarts else ""  # a restart goes on from it
            prepare = prepare._replace(store=store, emptied=emptied)
        self.agents.say(node, *files, prepare)

    def _prepare_all(self) -> None:
        if self.plan.launcher.settings is not None and self.plan.launcher.name == LAB:
            self._plan_attempt()
            self.collector.attempts.begin_with(self.attempt)
        nodes, files = set(self.agents.alive), tuple(file_messages(self.plan.run, self.archive))
        for node in nodes:
            self._prepare(node, files)
            self.agents.keep_alive()  # to send a large folder to hundreds of nodes may take longer than their lease
        self.agents.await_nodes(
            lambda: self.collector.prepared >= nodes or self._cannot_begin() or bool(self.agents.silent),
            _ANSWER_DEADLINE_S,
            lambda: f"{name_nodes(nodes - self.collector.prepared)} to prepare the run",
        )
        gone = [(lost.node, lost.how) for lost in self.facts.lost_nodes]
        for node, how in (*gone, *((node, self.agents.troubles[node].how) for node in sorted(self.agents.silent))):
            raise NodeLost(f"{node} {how} before the run began", "make a new cluster with `lab down` and `lab up`")

    def _cannot_begin(self) -> bool:
        return bool(self.facts.refused or self.facts.lost_nodes or self.facts.engine_lost)

    # -- while it runs

    def _take_in(self, node: str) -> None:
        """Have a node take part that came while the others are at it."""
        self._claim(node)
        self.starters.again(node)
        self._prepare(node, file_messages(self.plan.run, self.archive))
        self.agents.say(node, Go(self.plan.run))

    @property
    def changing(self) -> bool:
        """Whether something that goes along is changing nodes just now."""
        return any(companion.pending for companion in self.companions)

    def _look_for_nodes(self) -> None:
        """Take in nodes that have come, unless the run is about to end, or one is just being stopped or started."""
        ending = self.starters.ending or self.facts.timed_out or self._failed()
        if not (ending or self.changing):
            self.members.look()

    def _go(self) -> None:
        self.began = time.monotonic()
        for companion in self.companions:
            companion.attend(self.agents, self.collector.fact, self._look_for_nodes)
        self.agents.say_all(Go(self.plan.run))
        if self.starters and self.plan.ranks_planned:  # those that are not there yet could be given nothing to read
            until = min(self.began + _ANSWER_DEADLINE_S, self._deadline())
            self.agents.listen(lambda: self._all_there() or self._all_over() or self._failed(), until)
        self.stdin.begin(self.agents)

    def _all_there(self) -> bool:
        return all(rank.started is not None for rank in self.facts.ranks)

    def _follow(self) -> None:
        """Listen until all ranks have ended, one has failed, or the time limit has passed; then stop the others."""
        in_time = self.agents.listen_within(lambda: self._all_over() or self._failed(), self._deadline)
        self.stdin.end()
        if not in_time:
            self.agents.look()
            starting_s = self.starters.took_s(self.began, self.facts.ranks)
            self.collector.fact(events.TimedOut(time.time(), self.stdin.allowed_s, starting_s))
            self._collect_stacks()
        elif not (self._all_over() or self.facts.engine_lost or self.facts.refused):
            self._await_culprit()
        self._note_duration()
        self._stop()

    def _deadline(self) -> float:
        """The monotonic time at which the run has taken too long; it moves while none has started, or some are held."""
        if self.stdin.held:
            return time.monotonic() + SELDOM_S
        held_s = self.stdin.held_s + sum(companion.held_s for companion in self.companions)
        return self.began + self.starters.took_s(self.began, self.facts.ranks) + self.plan.timeout_s + held_s

    def _await_culprit(self) -> None:
        """After a first failure, learn what became of the others, and of the one whose fault it was."""
        self.agents.look()
        self.agents.listen_patiently(self._all_over, _FAILURE_GRACE_S)
        if not self.agents.listen_patiently(self._explained, _CULPRIT_GRACE_S):
            self._collect_stacks()

    def _explained(self) -> bool:
        """Whether somebody failed by its own fault, or nobody is left whose fault it could be."""
        from lab.diagnosis.errors import lost_a_peer  # not at the start: a run that passes needs none of it

        ended = [rank for rank in self.facts.ranks if rank.ended is not None]
        told = any(not rank.failed or not lost_a_peer(rank) for rank in ended)
        return told or self._all_over() or bool(self.facts.lost_nodes or self.facts.engine_lost)

    def _collect_stacks(self) -> None:
        self.agents.say_all(Stacks(self.plan.run))
        self.agents.listen_for(
            lambda: all(rank.stack or self._over(rank) for rank in self.facts.ranks), _STACK_DEADLINE_S
        )

    def _failed(self) -> bool:
        if self.facts.engine_lost or self.facts.refused or not self.members.enough:
            return True
        return self.starters.failed or (self.plan.ranks_planned and any(rank.failed for rank in self.facts.ranks))

    def _all_over(self) -> bool:
        over = not self.starters or self.starters.over(self.agents.alive.keys() - self.collector.finished)
        return not self.agents.alive or (over and all(map(self._over, self.facts.ranks)))

    def _over(self, rank: RankFacts) -> bool:
        """Whether nothing more can come from a rank, or not before somebody lets its node go on."""
        if rank.over or rank.node in self.collector.finished or (self.starters and rank.started is None):
            return True
        return rank.node in self.agents.silent and (self.facts.timed_out or self._failed())

    def _note_duration(self) -> None:
        if self.began:
            self.collector.fact(events.Over(time.time(), time.monotonic() - self.began))

    def _tick(self) -> None:
        if self.began:
            running = sum(not rank.over for rank in self.facts.ranks)
            self._look_for_nodes()
            self.observer.tick(time.monotonic() - self.began, running, self.collector.where)

    # -- its end

    def _stop(self) -> None:
        for hard, patience_s in ((False, _TERM_GRACE_S), (True, _STOP_DEADLINE_S)):
            if not self._all_over():
                self.agents.say_all(Stop(self.plan.run, hard))
                self.agents.listen_patiently(self._all_over, patience_s)

    def _leave(self, outputs: Outputs) -> None:
        """Have every agent clean up, once the files that are wanted were fetched."""
        agents, collector, interrupted = self.agents, self.collector, self.facts.interrupted
        nodes = collector.claimed & set(agents.alive) - agents.silent
        wanted = None if interrupted or not self.began else self.plan.outputs
        finish = Finish(agents.run, wanted, LIMIT_BYTES)
        with suppress(LabError):
            if not interrupted:
                collector.clocks.compare(agents.run, nodes)
                agents.listen_for(lambda: collector.clocks.settled(nodes & set(agents.alive)), _CLOCKS_DEADLINE_S)
            for node in list(agents.alive):  # files of the shared folder go with the nodes
                shared = self.cluster.shared if node == HOST and self.cluster.run else ""
                agents.say(node, finish._replace(shared=shared))
            self._hear_out(lambda: nodes & agents.alive.keys() <= collector.finished | outputs.told)
            for node, paths in outputs.choose().items():
                agents.say(node, Fetch(agents.run, tuple(paths)))
            self._hear_out(lambda: nodes & agents.alive.keys() <= collector.finished)
        outputs.close()
        agents.close()

    def _hear_out(self, done: Callable[[], bool]) -> None:
        """Listen until it is done: not for ever, but as long as the nodes are heard to be at it."""
        patience_s = _CANCEL_DEADLINE_S if self.facts.interrupted else _FINISH_DEADLINE_S
        heard, end = self.collector.heard, time.monotonic() + patience_s
        while not done():
            with suppress(RecordError):  # what cannot be written is lost; the nodes are waited for all the same
                self.agents.listen(done, end)
            if time.monotonic() >= end:
                if self.facts.interrupted or self.collector.heard <= heard:
                    break
                heard, end = self.collector.heard, end + patience_s

    # -- the lab's own launcher begins the workers anew after a failure

    def _plan_attempt(self) -> None:
        """Have the workers that are started next meet one another, and nobody of an earlier attempt."""
        self.plan = plan_of_attempt(self._planned, self._restarts)
        self.attempt = f"{self._restarts}@{self.plan.master_addr}:{self.plan.master_port}"

    def _may_restart(self) -> bool:
        """Whether a rank failed or a node was lost, everybody has been stopped, and there is a restart left."""
        facts = self.facts
        hopeless = facts.timed_out or facts.interrupted or facts.refused or facts.engine_lost
        left = bool(self.attempt) and self._restarts < self.plan.launcher.max_restarts
        return left and self._failed() and not hopeless and HOST in self.agents.alive and self._all_over()

    def _begin_anew(self) -> None:
        """Have all workers begin anew, and nodes that were lost first."""
        if self.companions:  # what cut a node's power is done before it gets it back
            self.agents.listen_for(lambda: not self.changing, _FAULT_DEADLINE_S)
        there = list(self.agents.alive)
        self._restarts += 1
        self._plan_attempt()
        self.collector.attempts.number(self.attempt)
        for worker in self.plan.workers:
            rank = self.facts.rank(worker.rank)
            rank.node, rank.local_rank = worker.node, worker.local_rank
        self.collector.prepared.clear()
        for node in sorted(there, key=lambda name: name != HOST):
            self._prepare(node, ())
        try:
            self.members.bring_back()
        except LabError as error:
            self.collector.fact(events.Refusal(time.time(), HOST, f"a node did not come back: {error.message}"))


def users_of(plan: Plan, cluster: ClusterInfo) -> Mapping[str, int]:
    """Who the workers in containers are, as a claim says it: all the same, or each rank of a node a user of its own.

    Folders of this machine that are mounted are read and written as whoever calls, unless that is root.
    """
    if (cluster.shape.volumes or cluster.shape.data) and os.getuid():
        return {"uid": os.getuid(), "gid": os.getgid()}
    first = first_uid_of(cluster.name) if cluster.shape.strict else FIRST_UID
    return {"uid": first, "gid": GROUP} if plan.one_user else {"first_uid": first}


def plan_of_attempt(plan: Plan, number: int) -> Plan:
    """The plan of an attempt, from 0; each has a store of its own, at the same port."""
    told = {
        "TORCHELASTIC_RESTART_COUNT": str(number),
        "TORCHELASTIC_MAX_RESTARTS": str(plan.launcher.max_restarts),
    }
    return replace(plan, workers=tuple(worker._replace(env={**worker.env, **told}) for worker in plan.workers))
