"""Exchange messages with the agents of a run."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from lab.engine.protocol import Channel, Engine, Trouble
from lab.errors import EngineUnavailable, LabError, RecordError
from lab.node.messages import wire
from lab.node.messages.agent import Message, Ping
from lab.record import events
from lab.run.collect import Collector

_PING_S = 5.0
_TICK_S = 1.0
_PAUSE_S = 2.0
_MOST_PATIENT = 4.0


class AgentChannels:
    """The channels to the agents of one run.

    Args:
        run: name of the run.
        engine: reports the state of a node whose channel closed.
        channels: one for each agent.
        collector: handles the messages.
        tick: called about once a second.
        on_poll: called in each iteration; returns the seconds until it has to be called again.
    """

    def __init__(
        self,
        run: str,
        engine: Engine,
        channels: Sequence[Channel],
        collector: Collector,
        tick: Callable[[], object],
        on_poll: Callable[[], float],
    ) -> None:
        self.run = run
        self.engine = engine
        self.collector = collector
        self.tick = tick
        self.alive: dict[str, Channel] = {}
        """Channels that have not closed, by name of the node."""
        self.troubles: dict[str, Trouble] = {}
        """Why nodes do not work now, by name."""
        self.on_poll = on_poll
        collector.clocks.ask = self.send
        self._can_poll_nodes = True
        self._readers: dict[str, wire.LineReader] = {}
        self._selector = selectors.PollSelector()  # standard input may be a file
        for channel in channels:
            self.add(channel)
        self._pinged = self._ticked = time.monotonic()

    def add(self, channel: Channel) -> None:
        """Add the channel to the agent of a node that is late, or was lost and is back."""
        name = channel.node.name
        self.alive[name], self._readers[name] = channel, wire.LineReader()
        self.troubles.pop(name, None)
        self.collector.addresses[channel.node.address] = name
        self._selector.register(channel.fileno(), selectors.EVENT_READ, partial(self._receive, channel))

    def send(self, node: str, *messages: Message) -> None:
        """Send messages to the agent of one node, if its channel is open."""
        if node in self.alive:
            self._send(self.alive[node], b"".join(map(wire.encode_message, messages)))

    def send_all(self, message: Message) -> None:
        """Send a message to every agent."""
        line = wire.encode_message(message)
        for channel in list(self.alive.values()):
            self._send(channel, line)

    def add_reader(self, descriptor: int, action: Callable[[], object]) -> None:
        """Call a function whenever a descriptor becomes readable while this listens."""
        self._selector.register(descriptor, selectors.EVENT_READ, action)

    def remove_reader(self, descriptor: int) -> None:
        """Stop watching a descriptor."""
        with suppress(KeyError, ValueError):
            self._selector.unregister(descriptor)

    def listen(self, done: Callable[[], bool], deadline: Callable[[], float]) -> bool:
        """Handle messages until `done` returns true or the deadline passes.

        Args:
            done: checked before each batch of messages.
            deadline: returns a monotonic time in seconds, which may change in either direction.

        Returns:
            Whether `done` returned true.
        """
        resumed = 0.0
        while not done():
            now = time.monotonic()
            if (left_s := max(deadline(), resumed) - now) <= 0:
                return False
            patience_s = min(left_s, _TICK_S, self.on_poll())
            for key, _ in self._selector.select(patience_s):
                key.data()
            self.keep_alive()
            if time.monotonic() - now > patience_s + _PAUSE_S:  # this process was stopped: read messages first
                resumed = time.monotonic() + _PAUSE_S
        return True

    def listen_for(self, done: Callable[[], bool], seconds: float, *, patient: bool = False) -> bool:
        """Listen as `listen` does, for at most this many seconds.

        Args:
            done: checked before each batch of messages.
            seconds: the time limit.
            patient: whether to wait up to four times as long on a machine with more runnable processes than cores.

        Returns:
            Whether `done` returned true.
        """
        wanted = os.getloadavg()[0] / (os.cpu_count() or 1) if patient else 1.0
        end = time.monotonic() + seconds * min(max(1.0, wanted), _MOST_PATIENT)
        return self.listen(done, lambda: end)

    def poll_nodes(self) -> None:
        """Ask the engine which nodes do not work, and why."""
        for name, channel in self.alive.items() if self._can_poll_nodes else ():
            try:
                trouble = self.engine.trouble(channel)
            except LabError:  # the engine cannot report this
                self._can_poll_nodes = False
                return
            if trouble == self.troubles.get(name):
                continue
            self.troubles.pop(name, None)
            if trouble is not None:
                self.troubles[name] = trouble
            self.collector.fact(events.NodeTroubled(time.time(), name, *(trouble or ())))

    @property
    def silent_nodes(self) -> set[str]:
        """Nodes whose agents cannot answer now."""
        return {name for name, trouble in self.troubles.items() if trouble.silent}

    def close(self) -> None:
        """Stop listening; the channels stay open."""
        self._selector.close()

    def keep_alive(self) -> None:
        """Send every agent a sign of life if one is due. Call this during long operations."""
        now = time.monotonic()
        if now - self._pinged > _PING_S:
            self._pinged = now
            self.send_all(Ping(self.run))
        if now - self._ticked > _TICK_S:
            self._ticked = now
            self.poll_nodes()
            self.tick()

    def _send(self, channel: Channel, data: bytes) -> None:
        try:
            channel.send(data)
        except OSError:
            self._lose(channel)

    def _receive(self, channel: Channel) -> None:
        if (data := channel.receive()) == b"":
            self._lose(channel)
        failed: RecordError | None = None
        for message in self._readers[channel.node.name].feed(data or b""):
            run = getattr(message, "run", "")  # an agent sends each message to all clients of its container
            if run != self.run and (run or not isinstance(message, wire.Malformed)):
                continue
            try:
                self.collector.collect(channel.node.name, message)
            except RecordError as error:  # handle the messages that came with it all the same
                failed = failed or error
        if failed:
            raise failed

    def _lose(self, channel: Channel) -> None:
        """Record why a node was lost whose channel closed."""
        name = channel.node.name
        with suppress(KeyError, ValueError):
            self._selector.unregister(channel)
        if self.alive.get(name) is not channel:  # the node is back and has another channel
            return
        del self.alive[name]
        now = time.time()
        try:
            how = self.engine.node_state(channel.node).sentence()
        except EngineUnavailable as error:
            self.collector.fact(events.EngineLost(now, name, error.message))
        else:
            self.collector.fact(events.NodeLost(now, name, how))
