"""Starting containers and giving each its agent: sent to it, or asked of the cluster's zygote."""

from __future__ import annotations

import select
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from lab.engine.docker import boot, first
from lab.engine.docker.channel import DockerChannel
from lab.engine.docker.connection import Connection
from lab.engine.docker.request import plain_start
from lab.engine.docker.zygote import Zygote
from lab.engine.payload import part, sent_first
from lab.engine.protocol import Announce
from lab.engine.ready import HELLO
from lab.plan.cluster import Node
from lab.words import plural

_ENTERING_TIMEOUT_S = 180.0


class Starter:
    """Starts the nodes of a cluster.

    Args:
        connection: to the engine.
        zygote: that of the cluster; None: nodes import torch themselves.
        first: whether the first process of a node is `first.py`.
    """

    def __init__(self, connection: Connection, zygote: Zygote | None, *, first: bool) -> None:
        self._connection = connection
        self._zygote = zygote
        self._first = first

    def start(self, node: Node) -> DockerChannel:
        """Start a container that does not run; the stream to it, on which its agent will say that it is ready."""
        channel = DockerChannel(node, self._connection.attach(node.handle))
        self._connection.start(node.handle)
        self._send_agent(channel, self._zygote)
        return channel

    def await_zygote(self, channels: Sequence[DockerChannel], announce: Announce) -> None:
        """Wait until the agents are there that a zygote was asked for; a node that got none imports torch itself."""
        if self._zygote is None:
            announce("importing torch on every node")
            return
        announce(f"importing torch once for {plural(len(channels), 'node')}")
        try:
            refused = dict(self._zygote.answers(_ENTERING_TIMEOUT_S))
        finally:
            self._zygote.close()
        if refused:
            node, why = next(iter(refused.items()))
            announce(f"importing torch on {plural(len(refused), 'node')}: {node.name} got no agent, because {why}")
        for channel in channels:
            if channel.node in refused:
                self._start_again(channel)
            else:
                with suppress(OSError):  # it has ended already
                    channel.send(HELLO)

    def _start_again(self, channel: DockerChannel) -> None:
        """Start a node anew, which waits for an agent that does not come."""
        self._connection.kill(channel.node.handle)
        channel.attach(self._connection.attach(channel.node.handle))
        self._connection.start(channel.node.handle)
        self._send_agent(channel, None)

    def _send_agent(self, channel: DockerChannel, zygote: Zygote | None) -> None:
        with suppress(OSError):  # it has ended already: whoever waits for it finds out why
            if not self._first:
                channel.send(sent_first() + HELLO)
                return
            text = Path(first.__file__).read_text()
            if zygote is None:
                config = self._connection.inspect(channel.node.handle)["Config"]["Cmd"][0]
                channel.send(part(f"{text}\nserve({plain_start(config)!r})\n".encode()) + sent_first() + HELLO)
                return
            channel.send(part(f"{text}\nserve()\n".encode()))
            if _waits(channel):
                zygote.ask(channel.node)


def _waits(channel: DockerChannel) -> bool:
    """Whether the first process of a node comes to wait for its agent; it may end instead."""
    end, said = time.monotonic() + boot.DEADLINE_S, b""
    while (left := end - time.monotonic()) > 0 and select.select([channel], [], [], left)[0]:
        chunk = channel.receive()
        if chunk == b"":
            return False
        said += chunk or b""
        if said.endswith(first.WAITS):
            return True
    return False
