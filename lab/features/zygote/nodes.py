"""Nodes of the docker engine whose agents a zygote forks: a container that imports torch once and enters theirs.

Entering containers takes rights of the machine's root. So there is a zygote only if it imports nothing but the lab's
own image, and if it pays: each node that imports torch itself takes a second and 150 MiB.
"""

from __future__ import annotations

import json
import os
import select
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lab.engine import boot
from lab.engine import ownership as label
from lab.engine.docker.connection import Connection, DockerChannel, Refused
from lab.engine.docker.create import Starter
from lab.engine.docker.request import plain_start
from lab.engine.docker.state import owner_labels
from lab.engine.payload import initial_input, prefix_length
from lab.engine.protocol import Announce
from lab.engine.ready import HELLO
from lab.features.zygote import first
from lab.features.zygote.on_node.entering import GROUPS, Enter, Entered
from lab.node.messages import wire
from lab.plan.cluster import RUNNING, Node
from lab.plan.limits import NodeCost
from lab.words import format_count

COST = NodeCost(node_bytes=20_000_000, shared_bytes=400_000_000, node_threads=16)
"""Estimates from measurements: memory of an idle node, of the engine's shim for it with its 13 threads, and of its
network; memory of a zygote."""
FROM_NODES = 9
"""Fewer nodes import torch themselves: it takes no longer, and nothing on the machine has more rights than a node."""
SWITCH = "LAB_DOCKER_ZYGOTE"
"""The variable that overrides the decision by the number of nodes: `never` or `always`."""
NAME = "zygote"
_MEMORY_BYTES = 2 << 30
_PROCESSES = 1024
_RIGHTS = ("SYS_ADMIN", "SYS_CHROOT", "SYS_PTRACE")
"""Capabilities in addition to those of a node: to enter namespaces, and to read the privileges of a first process."""
_ENTERING_TIMEOUT_S = 180.0
_START_FIRST = (
    ": node of the lab; for python in python3 python; do command -v $python >/dev/null && "
    f'exec $python -ISc "import os, signal; signal.signal(signal.SIGALRM, lambda *_: os._exit(1)); {boot.BECOME}" '
    '"$0"; done; '
    f"echo 'there is no python on PATH' >&2; exit {boot.NO_TORCH}"
)
"""The same if a zygote forks the agent: this process only waits. The kernel does not deliver an alarm to a first
process that has no handler for it."""


def uses_zygote(nodes: int) -> bool:
    """Return whether a cluster of this size has a zygote."""
    chosen = os.environ.get(SWITCH, "")
    return chosen == "always" or (chosen != "never" and nodes >= FROM_NODES)


def with_zygote(node: Mapping[str, Any]) -> dict[str, Any]:
    """A node whose agent a zygote forks: its first process is to the agent what the engine's init would be."""
    start = ["/bin/sh", "-c", _START_FIRST]
    return {**node, "Entrypoint": start, "HostConfig": {**node["HostConfig"], "Init": False}}


def zygote_body(node: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the request to Docker's API that creates a zygote for such nodes, with these labels."""
    config = {boot.ZYGOTE: "labnode.features.zygote.on_node.container", "import_root": boot.IMPORT_ROOT}
    return {
        "Image": node["Image"],
        "Entrypoint": plain_start(json.dumps(config)),
        "Hostname": NAME,
        "User": "0:0",
        "WorkingDir": "/",
        "OpenStdin": True,
        "StdinOnce": False,
        "Env": node["Env"],
        "Labels": {**labels, label.ZYGOTE: "yes"},
        "HostConfig": {
            "Binds": [f"/sys/fs/cgroup:{GROUPS}"],
            "CapDrop": ["ALL"],
            "CapAdd": [*node["HostConfig"]["CapAdd"], *_RIGHTS],
            "CgroupnsMode": "host",
            "IpcMode": "private",
            "LogConfig": {"Type": "none"},
            "Memory": _MEMORY_BYTES,
            "MemorySwap": _MEMORY_BYTES,
            "NetworkMode": "none",
            "PidMode": "host",
            "PidsLimit": _PROCESSES,
            "ReadonlyRootfs": True,  # forked agents can reach its files through /proc/PID/exe
            "SecurityOpt": ["no-new-privileges", "seccomp=unconfined"],
            "Tmpfs": dict.fromkeys((boot.IMPORT_ROOT, "/tmp"), "rw,nosuid,nodev,size=64m"),
        },
    }


class ForkingStarter(Starter):
    """Starts nodes whose first process waits for an agent.

    Args:
        connection: To the engine.
        zygote: Of the cluster; None: nodes import torch themselves.
    """

    def __init__(self, connection: Connection, zygote: Zygote | None) -> None:
        super().__init__(connection)
        self._zygote = zygote

    def send_agent(self, channel: DockerChannel) -> None:
        """Send a node the source of its first process, and request its agent once that process waits."""
        known = self.connection.inspect(channel.node.handle)
        plain = plain_start(known["Config"]["Cmd"][0])
        channel.send(prefix_length(f"{Path(first.__file__).read_text()}\nsupervise_agent({plain!r})\n".encode()))
        if self._zygote is None:
            channel.send(initial_input() + HELLO)
        elif _waits(channel):
            self._zygote.ask(channel.node, known["State"]["Pid"])

    def finish(self, channels: Sequence[DockerChannel], announce: Announce) -> None:
        """Wait until the zygote has forked the requested agents; a node without one imports torch itself."""
        zygote, self._zygote = self._zygote, None
        if zygote is None:
            super().finish(channels, announce)
            return
        announce(f"importing torch once for {format_count(len(channels), 'node')}")
        try:
            refused = dict(zygote.answers(_ENTERING_TIMEOUT_S))
        finally:
            zygote.close()
        if refused:
            node, why = next(iter(refused.items()))
            count = format_count(len(refused), "node")
            announce(f"importing torch on {count}: {node.name} has no agent, because {why}")
        for channel in channels:
            with suppress(OSError):  # it has ended already
                channel.send(initial_input() + HELLO if channel.node in refused else HELLO)


def _receive(channel: DockerChannel, end: float) -> bytes:
    """Return the next input before a monotonic time; empty: none arrived."""
    while (left := end - time.monotonic()) > 0 and select.select([channel], [], [], left)[0]:
        if (chunk := channel.receive()) is not None:
            return chunk
    return b""


def _waits(channel: DockerChannel) -> bool:
    """Return whether the first process of a node waits for its agent; it may end instead."""
    end, text = time.monotonic() + boot.DEADLINE_S, b""
    while not text.endswith(first.WAITS):
        if not (chunk := _receive(channel, end)):
            return False
        text += chunk
    return True


class Zygote:
    """The zygote of a cluster, as a client.

    Args:
        connection: To the engine.
        container: The engine's id of its container.
    """

    def __init__(self, connection: Connection, container: str) -> None:
        node = Node(name=NAME, node_rank=-1, handle=container, address="")
        self._channel = DockerChannel(node, *connection.attach(container))
        self._reader = wire.LineReader()
        self._asked: dict[str, Node] = {}
        self._sending = threading.Lock()

    def begin(self) -> None:
        """Have the new zygote import torch."""
        with suppress(OSError):  # it has ended already and does not answer
            self._channel.send(initial_input())

    def ask(self, node: Node, pid: int) -> None:
        """Request the agent of a node; `pid` is its first process as the machine numbers it."""
        with self._sending:
            self._asked[node.handle] = node
            self._channel.send(wire.encode_message(Enter(pid, node.handle)))

    def answers(self, deadline_s: float) -> list[tuple[Node, str]]:
        """Wait until the zygote has answered all requests; yield the nodes that have no agent, and why."""
        refused: list[tuple[Node, str]] = []
        end = time.monotonic() + deadline_s
        while self._asked and (chunk := _receive(self._channel, end)):
            for answer in [one for one in self._reader.feed(chunk) if isinstance(one, Entered)]:
                node = self._asked.pop(answer.container, None)
                if node is not None and answer.problem:
                    refused.append((node, answer.problem))
        lost = [(node, "its zygote does not answer") for node in self._asked.values()]
        self._asked.clear()
        return refused + lost

    def close(self) -> None:
        """Close the connection; the zygote stays."""
        self._channel.close()


def make_starter(connection: Connection, body: Mapping[str, Any], network: str, announce: Announce) -> ForkingStarter:
    """Create and start a zygote, which imports torch meanwhile; return the starter of nodes, also if there is none."""
    try:
        container = connection.create_container(body, f"{network}-{NAME}")
        zygote = Zygote(connection, container)
        connection.act(container, "start")
    except Refused as refused:  # such as an engine whose root is not the machine's root
        announce(f"every node imports torch itself: {refused.explanation}")
        return ForkingStarter(connection, None)
    zygote.begin()
    return ForkingStarter(connection, zygote)


def find_starter(connection: Connection, cluster: str) -> ForkingStarter:
    """Return the starter of existing nodes, with the zygote of the cluster if it runs."""
    for container in connection.containers([*owner_labels(cluster), label.ZYGOTE]):
        if container["State"] == RUNNING:
            return ForkingStarter(connection, Zygote(connection, container["Id"]))
    return ForkingStarter(connection, None)
