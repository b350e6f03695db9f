"""Streams to agents, and waiting until every agent of a cluster has answered."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from lab.engine.protocol import Announce, Channel, Engine
from lab.errors import ClusterError, ClusterUnfit, LabError, NodeLost
from lab.node.messages import wire
from lab.node.messages.agent import OLDEST_TORCH, PROTOCOL, Hello, Ready, Refused, is_older
from lab.plan.cluster import RUNNING, ClusterInfo, Node
from lab.words import format_duration, name_nodes

_GREETING_TIMEOUT_S = 90.0
_IDLE_TIMEOUT_S = 3.0
_FEW, _ANNOUNCE_S = 16, 0.5
"""Up to this many nodes, announce each one that becomes ready; for more, announce their number at this interval."""
HELLO = wire.encode_message(Hello())
T = TypeVar("T", bound=Channel)


@contextmanager
def closing_channels(channels: list[T]) -> Iterator[list[T]]:
    """Yield a list of channels, and close them at the end of the block."""
    try:
        yield channels
    finally:
        for channel in channels:
            channel.close()


def wait_ready(
    channels: Sequence[Channel],
    deadline_s: float,
    announce: Announce,
    on_answer: Callable[[Ready], object] = lambda _: None,
    check: Callable[[Sequence[Channel]], object] = lambda _: None,
) -> Channel | None:
    """Wait until every agent has imported torch and answered the hello that has been sent on its channel.

    Args:
        channels: to the agents.
        deadline_s: seconds to wait.
        announce: called with each line of progress.
        on_answer: called with each answer.
        check: called about once a second with channels that have not answered; it may raise.

    Returns:
        The channel to the first node that ended instead, or None if all answered.

    Raises:
        ClusterError: the deadline passed; the message names the nodes.
        ClusterUnfit: a node's torch is too old.
        NodeLost: an agent has another version.
    """
    pending = {channel.node.name: channel for channel in channels}
    readers = {channel.node.name: wire.LineReader() for channel in channels}
    deadline, announced_at = time.monotonic() + deadline_s, 0.0
    with selectors.DefaultSelector() as selector:
        for each in channels:
            selector.register(each.fileno(), selectors.EVENT_READ, each)
        while pending:
            if (left := deadline - time.monotonic()) <= 0:
                late = name_nodes(pending)
                why = f"{late} did not become ready within {format_duration(deadline_s)}: its agent was importing torch"
                hint = "see `lab doctor` for memory and cores; on a loaded machine, run the command again"
                raise ClusterError(why, hint)
            if not (answered := selector.select(min(left, 1.0))):
                check([channel for channel in channels if channel.node.name in pending])
            for key, _ in answered:
                channel: Channel = key.data
                if (data := channel.receive()) == b"":
                    return channel
                for message in readers[channel.node.name].feed(data or b""):
                    if isinstance(message, wire.Malformed) or (
                        isinstance(message, Refused)
                        and message.what == "hello"
                        and message.spoken in (0, PROTOCOL)  # or another version of the lab has asked
                    ):
                        raise NodeLost(f"cannot read a message of {channel.node.name}: {message.reason}")
                    if isinstance(message, Ready) and pending.pop(channel.node.name, None) is not None:
                        if is_older(message.torch, OLDEST_TORCH):
                            raise ClusterUnfit(
                                f"{message.node} has torch {message.torch}, but the lab needs {OLDEST_TORCH} or newer",
                                f"install a newer torch: pip install 'torch>={OLDEST_TORCH}'",
                            )
                        done = len(channels) - len(pending)
                        on_answer(message)
                        if len(channels) <= _FEW or not pending or time.monotonic() > announced_at + _ANNOUNCE_S:
                            announced_at = time.monotonic()
                            announce(f"{done}/{len(channels)} nodes ready (torch {message.torch})")
    return None


def _ask_agents(
    engine: Engine,
    cluster: ClusterInfo,
    deadline_s: float,
    check: Callable[[Sequence[Channel]], object] = lambda _: None,
) -> list[Ready] | None:
    """Return the answers of all running nodes' agents to a hello; None if one is unreachable, or ends instead.

    Raises:
        ClusterError: an agent neither answers nor ends; the message names its node.
    """
    answers: list[Ready] = []
    try:
        with closing_channels(list[Channel]()) as channels:
            channels += engine.connect(cluster, [node for node in cluster.nodes if node.state == RUNNING])
            for channel in channels:
                channel.send(HELLO)
            lost = wait_ready(channels, deadline_s, lambda _: None, answers.append, check)
    except (NodeLost, OSError):
        return None
    return answers if lost is None else None


def have_all_agents(engine: Engine, cluster: ClusterInfo) -> bool:
    """Return whether every running node of a cluster has an agent; its creator may have died before sending them.

    Raises:
        ClusterError: a node neither answers nor ends; the message names it.
    """

    def still_there(silent: Sequence[Channel]) -> None:
        for channel in silent:  # a stream to a container that has just ended may stay open and silent
            if not engine.node_state(channel.node).running:
                raise NodeLost(f"{channel.node.name} is not running")

    return _ask_agents(engine, cluster, _GREETING_TIMEOUT_S, still_there) is not None


def idle_s(engine: Engine, cluster: ClusterInfo) -> float:
    """Return the seconds for which no agent of a cluster had a run; 0 if a running agent's value is unknown."""
    answers = None
    with suppress(LabError):
        answers = _ask_agents(engine, cluster, _IDLE_TIMEOUT_S)
    return min((ready.idle_s for ready in answers or ()), default=0.0)


def stored_bytes(engine: Engine, cluster: ClusterInfo) -> int | None:
    """Return the size of the contents that a cluster's nodes keep; None if it is unknown."""
    answers = None
    with suppress(LabError):
        answers = _ask_agents(engine, cluster, _IDLE_TIMEOUT_S)
    return sum({ready.store: ready.stored_bytes for ready in answers}.values()) if answers else None


_SEND_DEADLINE_S = 30.0
_CHUNK_BYTES = 1 << 18


class Stream:
    """A connected stream socket to a node."""

    def __init__(self, node: Node, connection: socket.socket) -> None:
        self.node, self._socket = node, connection
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when `receive` has data."""
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        """Send all of it."""
        view, end = memoryview(data), time.monotonic() + _SEND_DEADLINE_S
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                left = end - time.monotonic()
                if left <= 0 or not wire.await_writable(self._socket.fileno(), left):
                    raise TimeoutError(
                        f"{self.node.name} read no message for {format_duration(_SEND_DEADLINE_S)}"
                    ) from None

    def receive(self) -> bytes | None:
        """Return received data: None if there is none yet, empty if the other end is closed."""
        try:
            return self._socket.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def close(self) -> None:
        """Close the stream; the agent keeps running."""
        self._socket.close()
