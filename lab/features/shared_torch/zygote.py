"""The zygote of a cluster of containers: it imports torch once, and forks the agents of all nodes into theirs.

It has what rights of the machine's root entering containers takes, so it is there only where it imports nothing but
the lab's own image, and where it pays: each node that imports torch itself takes a second and 150 MiB.
"""

from __future__ import annotations

import os
import select
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from lab.engine import boot
from lab.engine import ownership as label
from lab.engine.docker.connection import Connection, DockerChannel, Refused
from lab.engine.docker.state import filters
from lab.engine.payload import sent_first
from lab.engine.protocol import Announce
from lab.features.shared_torch.on_node.first_process import GROUPS
from lab.features.shared_torch.on_node.messages import Enter, Entered, Lines, encode
from lab.plan.cluster import RUNNING, Node, Shape

FROM_NODES = 9
"""Fewer import torch themselves: that takes no longer, and nothing on the machine has more rights than a node."""
SWITCH = "LAB_DOCKER_ZYGOTE"
"""The variable that says `never`, or `always`, where the number of nodes is not to decide."""
NAME = "zygote"
_MEMORY_BYTES = 2 << 30
_PROCESSES = 1024
_RIGHTS = ("SYS_ADMIN", "SYS_CHROOT", "SYS_PTRACE")
"""Beside those of a node, which it hands on: to enter namespaces and to read what a node's first process may do."""


def uses_zygote(shape: Shape) -> bool:
    """Whether the agents of such a cluster are forked by a zygote."""
    said = os.environ.get(SWITCH, "")
    fits = not (shape.strict or shape.image or shape.requirements or shape.gpus)
    return fits and said != "never" and (said == "always" or shape.nodes >= FROM_NODES)


def zygote_body(
    image: str, start: Sequence[str], env: Sequence[str], labels: Mapping[str, str], rights: Sequence[str]
) -> dict[str, Any]:
    """What Docker's API is asked for to make a zygote.

    Args:
        image: that of the nodes.
        start: what starts it.
        env: that of the nodes.
        labels: those of all that belongs to the cluster.
        rights: the capabilities of a node.
    """
    return {
        "Image": image,
        "Entrypoint": [*start],
        "Hostname": NAME,
        "User": "0:0",
        "WorkingDir": "/",
        "OpenStdin": True,
        "StdinOnce": False,
        "Env": [*env],
        "Labels": {**labels, label.ZYGOTE: "yes"},
        "HostConfig": {
            "Binds": [f"/sys/fs/cgroup:{GROUPS}"],
            "CapDrop": ["ALL"],
            "CapAdd": [*rights, *_RIGHTS],
            "CgroupnsMode": "host",
            "IpcMode": "private",
            "LogConfig": {"Type": "none"},
            "Memory": _MEMORY_BYTES,
            "MemorySwap": _MEMORY_BYTES,
            "NetworkMode": "none",
            "PidMode": "host",
            "PidsLimit": _PROCESSES,
            "ReadonlyRootfs": True,  # its files are behind /proc/PID/exe of all that it has forked
            "SecurityOpt": ["no-new-privileges", "seccomp=unconfined"],
            "Tmpfs": dict.fromkeys((boot.IMPORT_ROOT, "/tmp"), "rw,nosuid,nodev,size=64m"),
        },
    }


class Zygote:
    """The zygote of a cluster as this process asks it.

    Args:
        connection: to the engine.
        container: the engine's id of its container.
    """

    def __init__(self, connection: Connection, container: str) -> None:
        self._channel = DockerChannel(
            Node(name=NAME, node_rank=-1, handle=container, address=""), connection.attach(container)
        )
        self._connection = connection
        self._lines = Lines()
        self._asked: dict[str, Node] = {}
        self._sending = threading.Lock()

    def begin(self) -> None:
        """Have it import torch; it was just started."""
        with suppress(OSError):  # it has ended already, and answers nothing
            self._channel.send(sent_first())

    def ask(self, node: Node) -> None:
        """Ask for the agent of a node, whose first process waits for it."""
        pid = self._connection.inspect(node.handle)["State"]["Pid"]
        with self._sending:
            asked = Enter(uuid.uuid4().hex, pid, node.handle)
            self._asked[asked.asked] = node
            self._channel.send(encode(asked))

    def answers(self, deadline_s: float) -> list[tuple[Node, str]]:
        """Wait until all is answered that was asked: the nodes that have no agent, and why."""
        refused: list[tuple[Node, str]] = []
        end = time.monotonic() + deadline_s
        while self._asked:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._channel], [], [], left)[0]:
                break
            chunk = self._channel.receive()
            if chunk == b"":
                break
            for answer in self._lines.feed(chunk or b"", Entered):
                node = self._asked.pop(answer.asked, None)
                if node is not None and answer.problem:
                    refused.append((node, answer.problem))
        lost = [(node, "its zygote does not answer") for node in self._asked.values()]
        self._asked.clear()
        return refused + lost

    def close(self) -> None:
        """Let go of it; it lives on."""
        self._channel.close()


def make_zygote(connection: Connection, body: Mapping[str, Any], network: str, announce: Announce) -> Zygote | None:
    """Make and start a zygote, which imports torch meanwhile; None where the engine makes none."""
    try:
        created = connection.call(lambda: connection.api.create_container_from_config(body, f"{network}-{NAME}"))  # type: ignore[no-untyped-call]
        zygote = Zygote(connection, created["Id"])
        connection.start(created["Id"])
    except Refused as refused:  # such as one whose root is not that of its machine
        announce(f"every node imports torch itself: {refused.explanation}")
        return None
    zygote.begin()
    return zygote


def find_zygote(connection: Connection, cluster: str) -> Zygote | None:
    """The zygote of a cluster; None where none runs."""
    for container in connection.containers([*filters(cluster), label.ZYGOTE]):
        if container["State"] == RUNNING:
            return Zygote(connection, container["Id"])
    return None
