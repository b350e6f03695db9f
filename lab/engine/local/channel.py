"""The stream to an agent of a local node: a Unix socket."""

from __future__ import annotations

import socket
import struct

from lab.engine.stream import Stream
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
    channel = LocalChannel(node)
    try:
        return channel.peer_pid()
    finally:
        channel.close()
