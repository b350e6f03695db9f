"""The stream to an agent in a task's container, over the engine of its host."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

from lab.engine.docker.channel import DockerChannel
from lab.plan.cluster import Node


class TaskChannel(DockerChannel):
    """A docker channel that knows its container, and ends when its host does.

    Args:
        node: whose agent is at the other end.
        attached: what its host's engine gave for it.
        container: the engine's id of the task's container.
    """

    def __init__(self, node: Node, attached: Any, container: str) -> None:
        super().__init__(node, attached)
        self.container = container

    def cut(self) -> None:
        """Let whoever listens hear that the other end is gone: a host without power says nothing any more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
