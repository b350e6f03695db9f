"""The stream to an agent of a local node: a Unix socket."""

from __future__ import annotations

import socket
import struct

from lab.engine.stream import Stream
from lab.plan.cluster import Node


class LocalChannel(Stream):
    """A Unix socket to an agent.

    Raises:
        OSError: nobody listens there.
    """

    def __init__(self, node: Node) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(node.handle)
        except OSError:
            connection.close()
            raise
        super().__init__(node, connection)

    def peer_pid(self) -> int:
        """Pid of the agent."""
        credentials = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[0])


def listens(path: str) -> bool:
    """Whether an agent listens at a path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


def agent_pid(node: Node) -> int:
    """Pid of a node's agent.

    Raises:
        OSError: it does not run.
    """
    channel = LocalChannel(node)
    try:
        return channel.peer_pid()
    finally:
        channel.close()
