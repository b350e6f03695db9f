"""The conversation with the agents of a run: claim, ship, prepare, go, follow, stop, finish."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from lab.engine.protocol import Channel, Engine
from lab.errors import EngineUnavailable, LabError, NodeLost
from lab.node import wire
from lab.node.messages import Exited
from lab.plan.plan import Plan
from lab.record import events
from lab.record.write import RecordWriter
from lab.run.collect import Collector
from lab.run.observe import Observer
from lab.run.ship import file_messages
from lab.verdict.facts import RankFacts, RunFacts
from lab.words import format_duration

_ANSWER_DEADLINE_S = 60.0
_FAILURE_GRACE_S = 0.6
"""After the first failure the others get this long to say what became of them."""
_CULPRIT_GRACE_S = 0.6
"""If all who failed had only lost a peer, whoever left them gets this long to say why."""
_TERM_GRACE_S = 0.3
_STOP_DEADLINE_S = 3.0
_FINISH_DEADLINE_S = 5.0
_CANCEL_DEADLINE_S = 0.5
_STACK_DEADLINE_S = 2.0
_PING_S = 5.0
_LEASE_S = 60.0
_TICK_S = 1.0


class Driver:
    """Drives one plan.

    Args:
        plan: what to run.
        engine: asked what became of a node whose channel closed.
        channels: to the agents, in the order of node ranks.
        writer: takes every fact.
        observer: watches.
        owner: whose run it is; the agents tell it to others who ask.
        facts: what is known before the run begins; is filled.
    """

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        channels: Sequence[Channel],
        writer: RecordWriter,
        observer: Observer,
        *,
        owner: str,
        facts: RunFacts,
    ) -> None:
        self.plan = plan
        self.engine = engine
        self.writer = writer
        self.observer = observer
        self.owner = owner
        self.alive = {channel.node.name: channel for channel in channels}
        self.readers = {channel.node.name: wire.LineReader() for channel in channels}
        self.facts = facts
        self.began = 0.0
        """Monotonic time at which the workers were let go; 0: never."""
        self.collector = Collector(self.facts, writer, observer)
        self.selector = selectors.DefaultSelector()
        for channel in channels:
            self.selector.register(channel.fileno(), selectors.EVENT_READ, channel)
        self._pinged = self._ticked = time.monotonic()

    # -- the run

    def drive(self, archive: bytes, *, afterwards: Callable[[RunFacts], None] = lambda _: None) -> RunFacts:
        """Run the plan to its end, whatever end that is; nothing of it is left in any node.

        Args:
            archive: the scenario's folder, from `pack_folder`.
            afterwards: called when all ranks have ended by themselves and their folder is still there.

        Raises:
            ClusterBusy: somebody else has a node.
            NodeLost: a node went away before the run began.
            RecordError: the record cannot be written; the run was cancelled.
        """
        try:
            self._begin(archive)
            if self.began:
                self._follow()
                if not (self.facts.timed_out or self._failed()):
                    afterwards(self.facts)
        except KeyboardInterrupt:
            self._send_all({"op": "stop", "hard": True})
            self.collector.fact(events.Cancelled(time.time()))
            self._note_duration()
        finally:
            self._release()
        return self.facts

    def _begin(self, archive: bytes) -> None:
        claim = {
            "op": "claim",
            "run": self.plan.run,
            "owner": self.owner,
            "lease_s": _LEASE_S,
            "uid": os.getuid(),
            "gid": os.getgid(),
            "cold": self.plan.cold,
            "trace": {"values": self.plan.trace.values} if self.plan.trace.on else None,
        }
        files = b"".join(file_messages(self.plan.run, archive))
        for name, channel in list(self.alive.items()):
            workers = [
                {"rank": w.rank, "local_rank": w.local_rank, "env": dict(w.env), "argv": list(w.argv)}
                for w in self.plan.workers
                if w.node == name
            ]
            prepare: dict[str, Any] = {"op": "prepare", "run": self.plan.run, "workers": workers}
            if channel.node.node_rank == 0:
                prepare["master"] = {
                    "address": self.plan.master_addr,
                    "port": self.plan.master_port,
                    "world_size": self.plan.world_size,
                }
            self.collector.claims_sent[name] = time.time()
            self._send(channel, wire.encode(claim) + files + wire.encode(prepare))
        wanted = set(self.alive)
        self._pump(
            lambda: self.collector.answered["prepared"] >= wanted or self._cannot_begin(),
            _ANSWER_DEADLINE_S,
            lambda: f"{_names(wanted - self.collector.answered['prepared'])} to prepare the run",
        )
        if self.facts.lost_nodes:
            lost = self.facts.lost_nodes[0]
            raise NodeLost(
                f"{lost.node} {lost.how} before the run began", "make a new cluster with `lab down` and `lab up`"
            )
        if self._cannot_begin():
            return
        self.began = time.monotonic()
        self._send_all({"op": "go"})

    def _cannot_begin(self) -> bool:
        return bool(self.facts.refused or self.facts.lost_nodes or self.facts.engine_lost)

    def _follow(self) -> None:
        end = self.began + self.plan.timeout_s
        finished = self._pump(lambda: self._all_over() or self._failed(), None, str, until=end)
        if finished and not self._all_over() and not self.facts.engine_lost:
            self._await_culprit()
        elif not finished:
            self.collector.fact(events.TimedOut(time.time()))
            self._collect_stacks()
        self._note_duration()
        self._stop()

    def _await_culprit(self) -> None:
        """After a first failure, learn what became of the others, and of the one whose fault it was."""
        self._pump(self._all_over, None, str, until=time.monotonic() + _FAILURE_GRACE_S)
        self._pump(self._explained, None, str, until=time.monotonic() + _CULPRIT_GRACE_S)
        if not self._explained():
            self._collect_stacks()

    def _explained(self) -> bool:
        """Whether somebody failed by its own fault, or nobody is left whose fault it could be."""
        from lab.verdict.peers import lost_a_peer  # not at the start: a run that passes needs none of it

        ended = [rank for rank in self.facts.ranks if rank.ended is not None]
        told = any(not rank.failed or not lost_a_peer(rank) for rank in ended)
        return told or self._all_over() or bool(self.facts.lost_nodes or self.facts.engine_lost)

    def _note_duration(self) -> None:
        if self.began:
            self.collector.fact(events.Over(time.time(), time.monotonic() - self.began))

    def _failed(self) -> bool:
        if self.facts.lost_nodes or self.facts.engine_lost:
            return True
        return any(rank.failed for rank in self.facts.ranks)

    def _all_over(self) -> bool:
        return not self.alive or all(rank.over for rank in self.facts.ranks)

    def _collect_stacks(self) -> None:
        self._send_all({"op": "stacks"})
        self._pump(
            lambda: all(rank.over or rank.stack for rank in self.facts.ranks),
            None,
            str,
            until=time.monotonic() + _STACK_DEADLINE_S,
        )

    def _stop(self) -> None:
        for hard, patience in ((False, _TERM_GRACE_S), (True, _STOP_DEADLINE_S)):
            if self._all_over():
                return
            self._send_all({"op": "stop", "hard": hard})
            self._pump(self._all_over, None, str, until=time.monotonic() + patience)

    def check(self, reference: str, results: list[dict[str, Any]], deadline_s: float) -> RankFacts:
        """Run the scenario's own check in node 0, after all ranks have ended and before anything is removed.

        Args:
            reference: `file.py:function`.
            results: of all ranks, as in `result.json`.
            deadline_s: seconds it may take.
        """
        facts = self.facts.rank(-1)
        first = self.alive.get("node0")
        if first is None:
            return facts
        env = dict(self.plan.workers[0].env)
        message = {"op": "check", "run": self.plan.run, "check": reference, "results": results, "env": env}
        self._send(first, wire.encode(message))
        if not self._pump(lambda: facts.over, None, str, until=time.monotonic() + deadline_s):
            error = f"the check did not end within {format_duration(deadline_s)}"
            self.collector.fact(Exited(time=time.time(), rank=-1, node="node0", error=error))
        return facts

    def _release(self) -> None:
        """Have every agent clean up: not for ever, but as long as traces arrive."""
        patience = _CANCEL_DEADLINE_S if self.facts.interrupted else _FINISH_DEADLINE_S
        with suppress(LabError):
            wanted = self.collector.answered["claimed"] & set(self.alive)
            self._send_all({"op": "finish"})
            taken = -1
            while self.collector.trace_bytes > taken:
                taken = self.collector.trace_bytes
                if self._pump(lambda: self._all_finished(wanted), None, str, until=time.monotonic() + patience):
                    break
                if self.facts.interrupted:
                    break
        self.selector.close()

    def _all_finished(self, wanted: set[str]) -> bool:
        return self.collector.answered["finished"] >= wanted & set(self.alive)

    # -- messages

    def _send(self, channel: Channel, data: bytes) -> None:
        try:
            channel.send(data)
        except OSError:
            self._lose(channel)

    def _send_all(self, message: dict[str, Any]) -> None:
        line = wire.encode({**message, "run": self.plan.run})
        for channel in list(self.alive.values()):
            self._send(channel, line)

    def _pump(
        self,
        done: Callable[[], bool],
        deadline_s: float | None,
        waited_for: Callable[[], str],
        *,
        until: float | None = None,
    ) -> bool:
        """Handle messages until `done`, or until a deadline.

        Args:
            deadline_s: after so many seconds it is an error that names what was waited for.
            until: monotonic time at which to give up quietly instead.

        Returns:
            Whether it is done.
        """
        end = until if until is not None else time.monotonic() + (deadline_s or 0.0)
        while not done():
            now = time.monotonic()
            if now >= end:
                if deadline_s is None:
                    return False
                raise NodeLost(
                    f"waited {format_duration(deadline_s)} for {waited_for()}", "see `lab status` and `lab doctor`"
                )
            for key, _ in self.selector.select(min(end - now, _TICK_S)):
                self._receive(key.data)
            self._keep_alive()
        return True

    def _keep_alive(self) -> None:
        now = time.monotonic()
        if now - self._pinged > _PING_S:
            self._pinged = now
            self._send_all({"op": "ping"})
        if self.began and now - self._ticked > _TICK_S:
            self._ticked = now
            self.observer.tick(now - self.began, sum(not rank.over for rank in self.facts.ranks))

    def _receive(self, channel: Channel) -> None:
        data = channel.receive()
        if data is None:
            return
        if not data:
            self._lose(channel)
            return
        for message in self.readers[channel.node.name].feed(data):
            if message.get("run") == self.plan.run or message.get("ev") == "busy":
                self.collector.collect(channel.node.name, message)

    def _lose(self, channel: Channel) -> None:
        """The channel to a node closed: find out what became of the node."""
        name = channel.node.name
        if self.alive.pop(name, None) is None:
            return
        with suppress(KeyError, ValueError):
            self.selector.unregister(channel)
        now = time.time()
        try:
            how = self.engine.node_state(channel.node).sentence()
        except EngineUnavailable as error:
            self.collector.fact(events.EngineLost(now, name, error.message))
            return
        self.collector.fact(events.NodeLost(now, name, how))


def _names(nodes: Iterable[str]) -> str:
    return ", ".join(sorted(nodes, key=lambda name: (len(name), name)))
