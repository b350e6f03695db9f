"""Making a cluster of containers."""

from __future__ import annotations

import select
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lab.engine import ownership as label
from lab.engine.docker import boot, first
from lab.engine.docker.channel import DockerChannel
from lab.engine.docker.connection import Connection
from lab.engine.docker.direct import Refused
from lab.engine.docker.network import introduce, make_network, with_addresses
from lab.engine.docker.request import NAME, plain_start
from lab.engine.docker.state import filters, find, node_state
from lab.engine.payload import part, sent_first
from lab.engine.protocol import Announce, Channel, Request
from lab.engine.ready import HELLO, wait_ready
from lab.errors import ClusterError, ImageUnfit, LabError
from lab.node.messages.zygote import Enter, Entered, Lines, encode
from lab.plan.cluster import RUNNING, ClusterInfo, Node
from lab.words import plural

_READY_TIMEOUT_S = 180.0


def create(connection: Connection, cluster: str, requests: Sequence[Request], announce: Announce) -> ClusterInfo:
    """Make network, volume and containers, and wait until every agent has imported torch.

    Raises:
        LabError: a node did not start; what was made is still there.
    """
    network, volume, *containers = (request.body for request in requests)
    asked = [body for body in containers if label.NODE in body["Labels"]]
    image = asked[0]["Image"]
    api = connection.api
    subnet = make_network(connection, network, len(asked))
    nodes = with_addresses(asked, subnet)
    connection.call(
        lambda: api.create_volume(volume["Name"], labels=volume["Labels"], driver_opts=volume["DriverOpts"])
    )
    zygote = None
    for body in containers[len(nodes) :]:
        zygote = make_zygote(connection, body, f"{network['Name']}-{NAME}", announce)
    announce(f"starting {plural(len(nodes), 'node')} of image {image}")
    starter = Starter(connection, zygote, first=len(containers) > len(nodes))
    channels = connection.together(
        lambda rank: _make_node(connection, starter, rank, network["Name"], nodes[rank]), range(len(nodes))
    )
    await_agents(connection, starter, cluster, channels, image, announce)
    return find(connection, cluster)[0]


def await_agents(
    connection: Connection,
    starter: Starter,
    cluster: str,
    channels: Sequence[DockerChannel],
    image: str,
    announce: Announce,
) -> None:
    """Wait until every agent is ready that was started on these channels, and close them.

    Raises:
        LabError: a node ended instead.
    """
    try:
        starter.await_zygote(channels, announce)
        lost = wait_ready(channels, _READY_TIMEOUT_S, announce)
        if lost is None:
            introduce(connection, cluster, channels)
    finally:
        for channel in channels:
            channel.close()
    if lost is not None:
        raise explain_lost(connection, lost, image)


def _make_node(
    connection: Connection, starter: Starter, node_rank: int, network: str, body: Mapping[str, Any]
) -> DockerChannel:
    name = body["Hostname"]
    created = connection.call(lambda: connection.api.create_container_from_config(body, f"{network}-{name}"))  # type: ignore[no-untyped-call]
    return starter.start(Node(name=name, node_rank=node_rank, handle=created["Id"], address=""))


def explain_lost(connection: Connection, channel: Channel, image: str) -> LabError:
    """Why a node ended while it was starting."""
    state = node_state(connection, channel.node)
    said = getattr(channel, "complaints", b"").decode("utf-8", "replace").strip().splitlines()
    last = f": {said[-1]}" if said else ""
    if state.exit_code == boot.NO_TORCH:
        return ImageUnfit(f"image {image} has no Python that can import torch", "use an image with torch installed")
    hint = "raise --memory" if state.out_of_memory or state.exit_code == 137 else "`lab doctor` may know more"
    return ClusterError(f"{channel.node.name} {state.sentence()} while it was starting{last}", hint)


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


def make_zygote(connection: Connection, body: Mapping[str, Any], name: str, announce: Announce) -> Zygote | None:
    """Make and start a zygote, which imports torch meanwhile; None where the engine makes none."""
    try:
        created = connection.call(lambda: connection.api.create_container_from_config(body, name))  # type: ignore[no-untyped-call]
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
