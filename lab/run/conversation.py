"""The channels to the agents of a run."""

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


class Conversation:
    """The channels to the agents of one run.

    Args:
        run: name of the run.
        engine: asked what became of a node whose channel closed.
        channels: to the agents.
        collector: handles what they say.
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
        self.alive: dict[str, Channel] = {}
        """By name of the node: those that have not closed."""
        self.troubles: dict[str, Trouble] = {}
        """What keeps nodes from working now, by name."""
        self.look_often = look_often
        collector.clocks.ask = self.say
        self._may_look = True
        self._readers: dict[str, wire.LineReader] = {}
        self._selector = selectors.PollSelector()  # standard input may be a file
        for channel in channels:
            self.add(channel)
        self._pinged = self._ticked = time.monotonic()

    def add(self, channel: Channel) -> None:
        """Talk with the agent of one more node, or of one that was lost and is back."""
        name = channel.node.name
        self.alive[name], self._readers[name] = channel, wire.LineReader()
        self.troubles.pop(name, None)
        self.collector.addresses[channel.node.address] = name
        self._selector.register(channel.fileno(), selectors.EVENT_READ, partial(self._receive, channel))

    def say(self, node: str, *messages: Message) -> None:
        """Send messages to the agent of one node, if it is still there."""
        if node in self.alive:
            self._send(self.alive[node], b"".join(map(wire.encode_message, messages)))

    def say_all(self, message: Message) -> None:
        """Send a message to every agent."""
        line = wire.encode_message(message)
        for channel in list(self.alive.values()):
            self._send(channel, line)

    def hear(self, descriptor: int, action: Callable[[], object]) -> None:
        """Do something whenever a descriptor becomes readable while this listens."""
        self._selector.register(descriptor, selectors.EVENT_READ, action)

    def ignore(self, descriptor: int) -> None:
        """Do nothing any more when that can be read."""
        with suppress(KeyError, ValueError):
            self._selector.unregister(descriptor)

    def listen(self, done: Callable[[], bool], deadline: Callable[[], float]) -> bool:
        """Handle what the agents say until it is done or the deadline has passed; returns whether it is done.

        The deadline is a monotonic time, and may still move either way.
        """
        resumed = 0.0
        while not done():
            now = time.monotonic()
            left_s = max(deadline(), resumed) - now
            if left_s <= 0:
                return False
            patience_s = min(left_s, _TICK_S, self.look_often())
            for key, _ in self._selector.select(patience_s):
                key.data()
            self.keep_alive()
            if time.monotonic() - now > patience_s + _PAUSE_S:  # this process was stopped: what became of its run?
                resumed = time.monotonic() + _PAUSE_S
        return True

    def listen_for(self, done: Callable[[], bool], seconds: float, *, patient: bool = False) -> bool:
        """As `listen`, for at most this many seconds.

        Where it is `patient`, up to four times as long where so many processes want each core of this machine.
        """
        wanted = os.getloadavg()[0] / (os.cpu_count() or 1) if patient else 1.0
        end = time.monotonic() + seconds * min(max(1.0, wanted), _MOST_PATIENT)
        return self.listen(done, lambda: end)

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
            self.collector.fact(events.NodeTroubled(time.time(), name, *(trouble or ())))

    @property
    def silent(self) -> set[str]:
        """Nodes whose agents cannot answer now."""
        return {name for name, trouble in self.troubles.items() if trouble.silent}

    def close(self) -> None:
        """Stop listening; the channels stay open."""
        self._selector.close()

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

    def _send(self, channel: Channel, data: bytes) -> None:
        try:
            channel.send(data)
        except OSError:
            self._lose(channel)

    def _receive(self, channel: Channel) -> None:
        data = channel.receive()
        if data == b"":
            self._lose(channel)
        failed: RecordError | None = None
        for message in self._readers[channel.node.name].feed(data or b""):
            run = getattr(message, "run", "")  # every client of a container hears what its agent says to any of them
            if run != self.run and (run or not isinstance(message, wire.Malformed)):
                continue
            try:
                self.collector.collect(channel.node.name, message)
            except RecordError as error:  # what came with it is heard all the same
                failed = failed or error
        if failed:
            raise failed

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
        else:
            self.collector.fact(events.NodeLost(now, name, how))
