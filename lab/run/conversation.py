"""The channels to the agents of a run, and which nodes take part in it."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from lab.engine.protocol import Channel, Engine, Trouble
from lab.errors import EngineUnavailable, LabError, NodeLost, RecordError
from lab.node.messages import wire
from lab.node.messages.agent import Ping, Request
from lab.plan.cluster import RUNNING, ClusterInfo, Node
from lab.plan.plan import HOST, Plan
from lab.record import events
from lab.run.collect import Collector
from lab.run.lock import nodes_lock
from lab.words import format_duration

_PING_S = 5.0
_TICK_S = 1.0
_PAUSE_S = 2.0
_MOST_PATIENT = 4.0


class Conversation:
    """The channels to the agents of one run.

    Args:
        run: name of the run.
        engine: asked what became of a node whose channel closed.
        channels: to the agents.
        collector: takes what they say.
        tick: called about once a second.
        look_often: called each time round; returns for how many seconds it need not be.
    """

    def __init__(
        self,
        run: str,
        engine: Engine,
        channels: Sequence[Channel],
        collector: Collector,
        tick: Callable[[], object],
        look_often: Callable[[], float],
    ) -> None:
        self.run = run
        self.engine = engine
        self.collector = collector
        self.tick = tick
        self.alive = {channel.node.name: channel for channel in channels}
        """By name of the node: those that have not closed."""
        self.troubles: dict[str, Trouble] = {}
        """What keeps nodes from working now, by name."""
        self.look_often = look_often
        collector.clocks.ask = self.say
        self._may_look = True
        self._readers = {channel.node.name: wire.LineReader() for channel in channels}
        self._selector = selectors.PollSelector()  # standard input may be a file
        for channel in channels:
            collector.addresses[channel.node.address] = channel.node.name
            self._selector.register(channel.fileno(), selectors.EVENT_READ, partial(self._receive, channel))
        self._pinged = self._ticked = time.monotonic()

    def say(self, node: str, *messages: Request) -> None:
        """Send messages to the agent of one node, if it is still there."""
        if node in self.alive:
            self._send(self.alive[node], b"".join(map(wire.encode, messages)))

    def say_all(self, message: Request) -> None:
        """Send a message to every agent."""
        line = wire.encode(message)
        for channel in list(self.alive.values()):
            self._send(channel, line)

    def add(self, channel: Channel) -> None:
        """Talk with the agent of one more node, or of one that was lost and is back."""
        name = channel.node.name
        self.alive[name], self._readers[name] = channel, wire.LineReader()
        self.troubles.pop(name, None)
        self.collector.addresses[channel.node.address] = name
        self._selector.register(channel.fileno(), selectors.EVENT_READ, partial(self._receive, channel))

    def hear(self, descriptor: int, action: Callable[[], object]) -> None:
        """Do something whenever a descriptor becomes readable while this listens."""
        self._selector.register(descriptor, selectors.EVENT_READ, action)

    def listen(self, done: Callable[[], bool], until: float) -> bool:
        """Take what the agents say until it is done or that monotonic time has come; returns whether it is done."""
        while not done():
            now = time.monotonic()
            if now >= until:
                return False
            patience_s = min(until - now, _TICK_S, self.look_often())
            for key, _ in self._selector.select(patience_s):
                key.data()
            self.keep_alive()
            if time.monotonic() - now > patience_s + _PAUSE_S:  # this process was stopped: what became of its run?
                until = max(until, time.monotonic() + _PAUSE_S)
        return True

    def listen_within(self, done: Callable[[], bool], deadline: Callable[[], float]) -> bool:
        """As `listen`, until a moment that may still move, either way."""
        while not self.listen(done, min(deadline(), time.monotonic() + _TICK_S)):
            if time.monotonic() >= deadline():
                return False
        return True

    def listen_for(self, done: Callable[[], bool], seconds: float) -> bool:
        """As `listen`, for at most this many seconds."""
        return self.listen(done, time.monotonic() + seconds)

    def listen_patiently(self, done: Callable[[], bool], seconds: float) -> bool:
        """As `listen_for`, up to four times as long where so many processes want each core of this machine."""
        wanted = os.getloadavg()[0] / (os.cpu_count() or 1)
        return self.listen_for(done, seconds * min(max(1.0, wanted), _MOST_PATIENT))

    def await_nodes(self, done: Callable[[], bool], deadline_s: float, awaited: Callable[[], str]) -> None:
        """As `listen_for`, for something that has to happen; `awaited` says who was waited for, and to do what.

        Raises:
            NodeLost: it did not happen in time.
        """
        if not self.listen_for(done, deadline_s):
            raise NodeLost(f"waited {format_duration(deadline_s)} for {awaited()}", "see `lab status` and `lab doctor`")

    def look(self) -> None:
        """Ask the engine what keeps nodes from working."""
        for name, channel in self.alive.items() if self._may_look else ():
            try:
                trouble = self.engine.trouble(channel)
            except LabError:  # what it cannot say is not said
                self._may_look = False
                return
            if trouble == self.troubles.get(name):
                continue
            self.troubles.pop(name, None)
            if trouble is not None:
                self.troubles[name] = trouble
            how, silent = ("", True) if trouble is None else trouble
            self.collector.fact(events.NodeTroubled(time.time(), name, how, silent))

    @property
    def silent(self) -> set[str]:
        """Nodes whose agents cannot answer now."""
        return {name for name, trouble in self.troubles.items() if trouble.silent}

    def ignore(self, fd: int) -> None:
        """Do nothing any more when that can be read."""
        with suppress(KeyError, ValueError):
            self._selector.unregister(fd)

    def close(self) -> None:
        """Stop listening; the channels stay open."""
        self._selector.close()

    def _send(self, channel: Channel, data: bytes) -> None:
        try:
            channel.send(data)
        except OSError:
            self._lose(channel)

    def keep_alive(self) -> None:
        """Let every agent hear that somebody is still there, if it is time for that; whoever takes long calls this."""
        now = time.monotonic()
        if now - self._pinged > _PING_S:
            self._pinged = now
            self.say_all(Ping(self.run))
        if now - self._ticked > _TICK_S:
            self._ticked = now
            self.look()
            self.tick()

    def _receive(self, channel: Channel) -> None:
        data = channel.receive()
        if data == b"":
            self._lose(channel)
        failed: RecordError | None = None
        for message in self._readers[channel.node.name].feed(data or b""):
            try:
                if self._is_of_this_run(message):
                    self.collector.collect(channel.node.name, message)
            except RecordError as error:  # what came with it is heard all the same
                failed = failed or error
        if failed:
            raise failed

    def _is_of_this_run(self, message: wire.Message | wire.Malformed) -> bool:
        """Every client of a container hears what its agent says to any of them."""
        run = getattr(message, "run", "")
        return run == self.run or (not run and isinstance(message, wire.Malformed))

    def _lose(self, channel: Channel) -> None:
        """The channel to a node closed: find out what became of the node."""
        name = channel.node.name
        with suppress(KeyError, ValueError):
            self._selector.unregister(channel)
        if self.alive.get(name) is not channel:  # another one to a node that is back may be there by now
            return
        del self.alive[name]
        now = time.time()
        try:
            how = self.engine.node_state(channel.node).sentence()
        except EngineUnavailable as error:
            self.collector.fact(events.EngineLost(now, name, error.message))
            return
        self.collector.fact(events.NodeLost(now, name, how))


class Members:
    """The nodes of one run.

    Args:
        plan: says on which nodes it may run, and how many it needs.
        engine: of the cluster.
        cluster: None where nodes never come.
        agents: of the nodes that it has.
        collector: takes what they say.
        begin: has the agent of a node take part, which knows nothing of the run yet.
    """

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        cluster: ClusterInfo | None,
        agents: Conversation,
        collector: Collector,
        begin: Callable[[str], object],
    ) -> None:
        self._planned = {worker.node for worker in plan.workers}
        self._least = plan.launcher.least_nodes(plan.nnodes)
        self._engine = engine
        self._cluster = cluster
        self._agents = agents
        self._collector = collector
        self._begin = begin
        self._came: list[Channel] = []

    @property
    def enough(self) -> bool:
        """Whether the launcher goes on with the nodes that are there."""
        there = self._agents.alive
        return len(there) >= self._least and HOST in there

    def look(self) -> None:
        """Take in nodes of the run that run and are not there: they were stopped and are started, or were late."""
        missing = self._planned - self._agents.alive.keys()
        if not missing or self._cluster is None or self._least == len(self._planned):
            return
        if nodes_lock(self._engine.name, self._cluster.name).holder() is not None:
            return  # one may just be starting
        try:
            found = self._engine.find(self._cluster.name)
        except LabError:  # what becomes of the run is seen by its own nodes
            return
        for node in found[0].nodes if found else ():
            if node.name in missing and node.state == RUNNING:
                self._take_in(node)

    def bring_back(self) -> None:
        """Start those that were lost, and have them take part again.

        Raises:
            LabError: one does not start.
        """
        missing = self._planned - self._agents.alive.keys()
        if missing and self._cluster is not None:
            lost = [node for node in self._cluster.nodes if node.name in missing]
            from lab.engine.protocol import PowerControl, capable

            capable(self._engine, PowerControl).start(self._cluster, lost, announce=lambda _: None)
            for found in self._engine.find(self._cluster.name)[:1]:
                for node in found.nodes:
                    if node.name in missing:
                        self._take_in(node)

    def _take_in(self, node: Node) -> None:
        assert self._cluster is not None
        try:
            (channel,) = self._engine.connect(self._cluster, [node])
        except LabError:  # it is gone again
            return
        self._came.append(channel)
        self._agents.add(channel)
        for told in (self._collector.claimed, self._collector.prepared, self._collector.finished):
            told.discard(node.name)
        self._collector.fact(events.NodeCame(time.time(), node.name))
        self._begin(node.name)

    def close(self) -> None:
        """Let go of the channels to those that came."""
        for channel in self._came:
            channel.close()
