"""Requests for deeds, and their answers: through the conversation of a run that goes on, or over a channel apart."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from contextlib import suppress

from lab.engine.protocol import Channel, Engine
from lab.errors import ClusterError
from lab.features.faults.on_node.deeds import DEADLINE_S, Asked
from lab.node.messages import wire
from lab.node.messages.agent import Done
from lab.plan.cluster import ClusterInfo, Node
from lab.run.conversation import Conversation

ANSWER_S = DEADLINE_S + 5.0
"""An agent that has not answered by then does not."""


class DeedLine:
    """What the thread of faults asks the agents of a run, which only the thread of the run talks with.

    Args:
        agents: those of the run.
        wake: has the thread of the run call `pass_on` soon.
    """

    def __init__(self, agents: Conversation, wake: Callable[[], object]) -> None:
        self._agents = agents
        self._wake = wake
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, Asked, Future[Done]]] = []
        self._asked: dict[str, tuple[str, Future[Done]]] = {}
        """By id: the node, and what becomes of it."""

    def ask(self, node: str, asked: Asked) -> Done | None:
        """Ask, in the thread of faults, and wait; None where the run does not have the node.

        Raises:
            ClusterError: there was no answer.
        """
        future: Future[Done] = Future()
        with self._lock:
            self._waiting.append((node, asked._replace(run=self._agents.run), future))
        self._wake()
        try:
            done = future.result(ANSWER_S)
        except NotInTime:
            raise silent(node) from None
        return None if done.id != asked.id else done

    def pass_on(self) -> None:
        """Send what waits; tell of nodes that were lost."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for node, asked, future in waiting:
            self._asked[asked.id] = node, future
            self._agents.say(node, asked)
        for identity, (node, future) in list(self._asked.items()):
            if node not in self._agents.alive:
                del self._asked[identity]
                future.set_result(Done("", {}))

    def hear(self, done: Done) -> None:
        """An agent has answered."""
        _, future = self._asked.pop(done.id, ("", None))
        if future is not None:
            future.set_result(done)


def ask_apart(engine: Engine, cluster: ClusterInfo, node: Node, asked: Asked) -> Done:
    """Ask over a channel of its own, and wait.

    Raises:
        ClusterError: there was no answer.
        NodeLost: the node cannot be reached.
    """
    (channel,) = engine.connect(cluster, [node])
    try:
        with suppress(OSError):
            channel.send(wire.encode(asked))
            done = _answer(channel, asked.id)
            if done is not None:
                return done
        raise silent(node.name)
    finally:
        channel.close()


def _answer(channel: Channel, identity: str) -> Done | None:
    reader, poll, until = wire.LineReader(), select.poll(), time.monotonic() + ANSWER_S
    poll.register(channel.fileno(), select.POLLIN)
    while (left_s := until - time.monotonic()) > 0:
        poll.poll(left_s * 1000)
        data = channel.receive()
        if data == b"":
            return None
        for message in reader.feed(data or b""):
            if isinstance(message, Done) and message.id == identity:
                return message
    return None


def silent(node: str) -> ClusterError:
    """Why there is no answer."""
    return ClusterError(f"the agent of {node} does not answer", "see `lab status`")
