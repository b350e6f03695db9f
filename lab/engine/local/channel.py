"""The stream to an agent of a local node: a Unix socket."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from pathlib import Path

from lab.engine.protocol import Channel
from lab.engine.stream import Stream
from lab.errors import NodeLost
from lab.node import processes
from lab.plan.cluster import Node

_ACCEPT_DEADLINE_S = 5
"""An agent that is stopped accepts nobody; when so many wait as the kernel lets, a further one would wait for ever."""


class LocalChannel(Stream):
    """A Unix socket to an agent.

    Raises:
        BlockingIOError: whoever listens there does not take what waits: it is stopped.
        OSError: nobody listens there.
    """

    def __init__(self, node: Node) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _ACCEPT_DEADLINE_S, 0))
        try:
            connection.connect(node.handle)
        except OSError:
            connection.close()
            raise
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 0))
        super().__init__(node, connection)

    def peer_pid(self) -> int:
        """Pid of the agent."""
        credentials = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[0])


def open_channels(cluster: str, nodes: Sequence[Node]) -> list[Channel]:
    """A channel to each of these nodes of a cluster.

    Raises:
        NodeLost: one cannot be reached; none is open then.
    """
    channels: list[Channel] = []
    for node in nodes:
        try:
            channels.append(LocalChannel(node))
        except OSError as error:
            for channel in channels:
                channel.close()
            raise NodeLost(f"{node.name} of cluster {cluster} cannot be reached: {error.strerror}") from error
    return channels


def paused_file(path: str) -> Path:
    """What is there while a node stands still on purpose, with the pid of its agent; `path` is where that listens."""
    return Path(f"{path}.paused")


def paused_pid(path: str) -> int:
    """Pid of an agent that stands still on purpose, 0 where it does not, without one of its few connections."""
    try:
        pid = int(paused_file(path).read_text())
    except (OSError, ValueError):
        return 0
    return pid if processes.is_stopped(pid) else 0


def listens(path: str) -> bool:
    """Whether an agent listens at a path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:  # it is stopped, and does not take what waits
            return True
        except OSError:
            return False
        return True


def agent_pid(node: Node) -> int:
    """Pid of a node's agent.

    Raises:
        OSError: it does not run.
    """
    paused = paused_pid(node.handle)
    if paused:
        return paused
    channel = LocalChannel(node)
    try:
        return channel.peer_pid()
    finally:
        channel.close()
