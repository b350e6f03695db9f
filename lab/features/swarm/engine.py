"""The swarm engine: a node is a task of a Docker Swarm, and all about one node is asked of the engine of its host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

from lab.engine import ownership as label
from lab.engine.docker.connection import Refused
from lab.engine.docker.engine import DockerEngine
from lab.engine.docker.state import trouble as task_trouble
from lab.engine.interrupts import uninterrupted
from lab.engine.ownership import register_cluster
from lab.engine.packages import package_store
from lab.engine.protocol import (
    Announce,
    Channel,
    NodeState,
    Removed,
    Request,
    Traits,
    Trouble,
    refuse_for_one_host,
)
from lab.errors import ClusterError, ClusterUnfit, EngineUnavailable, LabError, MachineLacks, NodeLost
from lab.features.swarm import state
from lab.features.swarm.hosts import Hosts, TaskChannel, read_settings
from lab.plan.cluster import ClusterInfo, Node, Shape
from lab.plan.limits import Machine

if TYPE_CHECKING:
    from lab.engine.docker.connection import Connection
    from lab.engine.doctor import Check, Wanted

_SETTLE_S = 1.0


def _on_its_host(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of the docker engine about one node, called with the engine of the node's host."""

    @wraps(method)
    def call(swarm: SwarmEngine, node: Node, *arguments: Any) -> Any:
        return method(swarm.hosts.engine(node.host), state.on_its_host(swarm.hosts, node), *arguments)

    return call


class SwarmEngine:
    """Clusters of a swarm's tasks."""

    name = state.ENGINE
    traits = Traits(isolates=True)

    def __init__(self) -> None:
        self._settings = read_settings()
        self.hosts = Hosts(self._settings)

    # -- finding

    def find(self, cluster: str | None = None) -> list[ClusterInfo]:
        """The owner's clusters that exist, wholly or in part, by their labels."""
        if cluster is None:
            self._sweep()
        return state.find(self.hosts, cluster)

    def _sweep(self) -> None:
        from lab.features.swarm.state import sweep

        sweep(self.hosts)

    def nodeless(self) -> list[str]:
        """Names of the owner's clusters of which something is there, but no node."""
        return state.nodeless(self.hosts)

    def node_state(self, node: Node) -> NodeState:
        """What became of a node."""
        if not self.hosts.answers(node.host):
            said = f"was lost with its host {node.host} (whose engine does not answer)"
            return NodeState(running=False, said=said)
        try:
            return self._engine(node).node_state(self._there(node))
        except NodeLost:
            return NodeState(running=False, gone=True)

    def trouble(self, channel: Channel) -> Trouble | None:
        """What keeps a node from working although it is there; a node whose host is gone is not: its channel ends."""
        assert isinstance(channel, TaskChannel)
        if not self.hosts.answers(channel.node.host):
            channel.cut()
            return None
        connection = self._engine(channel.node).connection
        return task_trouble(connection, replace(channel.node, handle=channel.container))

    def _engine(self, node: Node) -> DockerEngine:
        """The engine of a node's host."""
        return self.hosts.engine(node.host)

    def _there(self, node: Node) -> Node:
        """The node as the engine of its host knows it.

        Raises:
            NodeLost: it has no container there.
        """
        return state.on_its_host(self.hosts, node)

    # -- making

    def requests(self, cluster: str, shape: Shape, *, run: str | None) -> list[Request]:
        """What `create` asks of the manager; nothing is made."""
        return self._requests(cluster, shape, run, None)

    def _requests(self, cluster: str, shape: Shape, run: str | None, image: str | None) -> list[Request]:
        """The same with the id that the image has on every host: what has a name is looked for in a registry."""
        from lab.engine.docker.request import requests_for
        from lab.features.swarm.create import translated, usable_hosts

        if shape.gpus:
            raise MachineLacks("the swarm engine gives nodes no GPUs", "use --engine docker on a machine that has some")
        refuse_for_one_host(replace(shape, hosts=()), self.name)
        names = usable_hosts(self.hosts, shape.hosts)
        least = self._least(names)
        whole = least._replace(memory_bytes=least.memory_bytes * min(len(names), shape.nodes))
        asked = requests_for(cluster, shape, owner=label.owner(), run=run, machine=whole, image=image, zygote=False)
        others = {host.id for host in self.hosts.known.values() if shape.hosts and host.name not in names}
        shared = f"{self._settings.shared}/{cluster}" if self._settings.shared else None
        return translated(asked, shape, not_on=others, shared=shared)

    def machine(self) -> Machine:
        """The least of the hosts: what any node can count on."""
        return self._least(self.hosts.known)

    def _least(self, names: Iterable[str]) -> Machine:
        hosts = [self.hosts.known[name] for name in names]
        return Machine(cores=min(one.cores for one in hosts), memory_bytes=min(one.memory_bytes for one in hosts))

    def create(self, cluster: str, shape: Shape, *, run: str | None, announce: Announce) -> ClusterInfo:
        """Make every node and wait until its agent can fork workers; after an error nothing is left."""
        from lab.engine.docker.image import DEFAULT_IMAGE
        from lab.features.swarm.create import create, usable_hosts
        from lab.features.swarm.images import ensure_on_all

        self.requests(cluster, shape, run=run)  # refuses what cannot be, before images are sent
        image = shape.image or DEFAULT_IMAGE
        if shape.requirements:
            image = package_store(self).prepare(image, shape.requirements, announce=announce)
        identity = ensure_on_all(self.hosts, usable_hosts(self.hosts, shape.hosts), image, announce)
        if self.hosts.manager.networks([f"{label.CLUSTER}={cluster}"]):
            raise ClusterUnfit(f"the swarm has a cluster {cluster} already", "use another name with --name")
        register_cluster(self.name, cluster)
        try:
            self._make_shared(cluster, identity, announce)
            create(self.hosts, cluster, self._requests(cluster, shape, run, identity), image, announce)
            return state.find(self.hosts, cluster)[0]
        except BaseException as error:
            with uninterrupted(), suppress(LabError):
                self.remove(cluster, settle=True)
            if isinstance(error, Refused):
                raise ClusterError(
                    f"Swarm could not make cluster {cluster}: {error.explanation}", error.hint
                ) from error
            raise

    def _make_shared(self, cluster: str, image: str, announce: Announce) -> None:
        from lab.features.swarm.images import make_shared

        if self._settings.shared is None:
            if len(self.hosts.known) > 1:
                announce(
                    "warning: nodes share /shared with those on the same host only; docs/swarm.md says how with all"
                )
            return
        labels = {state.OWNER: label.owner(), label.CLUSTER: cluster}
        make_shared(self.hosts.manager.connection, image, self._settings.shared, cluster, labels)

    def has_image(self, image: str) -> bool:
        """Whether nodes can be made of an image without pulling it: one host that has it is enough."""
        return any(self.hosts.engine(name).has_image(image) for name in self.hosts.known if self.hosts.answers(name))

    def image_connection(self) -> Connection:
        """To the Docker engine that makes images, which are then sent to hosts."""
        from lab.features.swarm.images import workbench

        return workbench(self.hosts).connection

    # -- using

    def connect(self, cluster: ClusterInfo, nodes: Sequence[Node]) -> list[Channel]:
        """Open a channel to the agent of each of these nodes."""
        channels: list[Channel] = []
        try:
            for node, there in zip(nodes, state.on_their_hosts(self.hosts, nodes), strict=True):
                stream = self._engine(node).connection.attach(there.handle)
                channels.append(TaskChannel(node, stream, there.handle))
        except (Refused, EngineUnavailable) as error:
            for channel in channels:
                channel.close()
            raise NodeLost(f"cluster {cluster.name}: a node cannot be reached: {error.message}") from error
        return channels

    def stop(self, nodes: Sequence[Node]) -> None:
        """Kill nodes, where they run, and have them found as stopped until they are started."""
        from lab.features.swarm.create import stop

        stop(self.hosts, nodes)

    def start(self, cluster: ClusterInfo, nodes: Sequence[Node], *, announce: Announce) -> None:
        """Have Swarm make the tasks of nodes that do not run anew, and wait until their agents can fork workers."""
        from lab.features.swarm.create import start

        start(self.hosts, cluster, nodes, announce)

    def execute(self, cluster: ClusterInfo, node: Node, argv: Sequence[str], *, tty: bool) -> int:
        """Run a command in a node with this process's standard streams; returns its exit code."""
        return self._engine(node).execute(cluster, self._there(node), argv, tty=tty)

    def ask_python(self, cluster: ClusterInfo, program: str) -> str:
        """What a program prints that the Python of the first node runs."""
        first = self._there(cluster.nodes[0])
        return self._engine(first).ask_python(replace(cluster, nodes=(first,)), program)

    memory_bytes = _on_its_host(DockerEngine.memory_bytes)
    kill = _on_its_host(DockerEngine.kill)
    pause = _on_its_host(DockerEngine.pause)
    resume = _on_its_host(DockerEngine.resume)
    paused = _on_its_host(DockerEngine.paused)
    limit = _on_its_host(DockerEngine.limit)
    throttle = _on_its_host(DockerEngine.throttle)
    read_files = _on_its_host(DockerEngine.read_files)
    write_files = _on_its_host(DockerEngine.write_files)

    # -- removing

    def remove(self, cluster: str | None, *, settle: bool = False) -> Removed:
        """Remove the owner's cluster of this name, or all of them, by their labels, from every host that answers."""
        from lab.features.swarm.state import remove

        self._sweep()
        return remove(self.hosts, self._settings, cluster, settle_s=_SETTLE_S if settle else 0.0)

    def examine(self, wanted: Wanted) -> list[Check]:
        """What `lab doctor` has to say about this engine."""
        from lab.features.swarm.doctor import examine

        return examine(self.hosts, self._settings, wanted)
