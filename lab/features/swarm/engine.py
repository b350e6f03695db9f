"""The swarm engine: a node is a task of a Docker Swarm, and all about one node is asked of the engine of its host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

from lab.engine import ownership as label
from lab.engine.docker.connection import Refused
from lab.engine.docker.engine import DockerEngine
from lab.engine.docker.state import find_rest
from lab.engine.docker.state import remove as remove_from_host
from lab.engine.interrupts import uninterrupted
from lab.engine.ownership import forget_cluster, register_cluster
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
from lab.features.swarm.create import create, start, stop, translated, usable_hosts
from lab.features.swarm.hosts import (
    OWNER,
    Hosts,
    TaskChannel,
    filters,
    find_clusters,
    forget,
    on_their_hosts,
    read_settings,
    remember,
    sweep,
)
from lab.plan.cluster import ClusterInfo, Node, Shape
from lab.plan.limits import Machine
from lab.waiting import wait_until
from lab.words import format_duration, listing

if TYPE_CHECKING:
    from lab.engine.docker.connection import Connection
    from lab.engine.doctor import Check, Wanted

_SETTLE_S = 1.0
_NETWORK_GONE_S = 60.0
_LOOK_S = 0.05


def _on_its_host(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of the docker engine about one node, called with the engine of the node's host."""

    @wraps(method)
    def call(swarm: SwarmEngine, node: Node, *arguments: Any) -> Any:
        return method(swarm.hosts.engine(node.host), swarm.there(node), *arguments)

    return call


class SwarmEngine:
    """Clusters of a swarm's tasks."""

    name = "swarm"
    traits = Traits(isolates=True)

    def __init__(self) -> None:
        self._settings = read_settings()
        self.hosts = Hosts(self._settings)

    # -- finding

    def find(self, cluster: str | None = None) -> list[ClusterInfo]:
        """The owner's clusters that exist, wholly or in part, by their labels."""
        if cluster is None:
            sweep(self.hosts)
        return find_clusters(self.hosts, self.name, cluster)

    def nodeless(self) -> list[str]:
        """Names of the owner's clusters of which a network, a container or a volume is there, but no service."""
        asked = filters(None)
        alive = {service["Spec"]["Labels"][label.CLUSTER] for service in self.hosts.services(asked)}

        def on_host(name: str) -> set[str]:
            self.hosts.await_sign(name)
            connection = self.hosts.engine(name).connection
            things = [*connection.containers(asked), *find_rest(connection, asked)[1]]
            return {thing["Labels"][label.CLUSTER] for thing in things}

        found = {network["Labels"][label.CLUSTER] for network in self.hosts.networks(asked)}
        return sorted(found.union(*self.hosts.each(on_host, self.hosts.known).values()) - alive)

    def node_state(self, node: Node) -> NodeState:
        """What became of a node."""
        if not self.hosts.answers(node.host):
            said = f"was lost with its host {node.host} (whose engine does not answer)"
            return NodeState(running=False, said=said)
        try:
            return self.hosts.engine(node.host).node_state(self.there(node))
        except NodeLost:
            return NodeState(running=False, gone=True)

    def trouble(self, channel: Channel) -> Trouble | None:
        """What keeps a node from working although it is there; a node whose host is gone is not: its channel ends."""
        assert isinstance(channel, TaskChannel)
        if not self.hosts.answers(channel.node.host):
            channel.cut()
            return None
        return self.hosts.engine(channel.node.host).trouble_of(channel.container)

    def there(self, node: Node) -> Node:
        """The node as the engine of its host knows it.

        Raises:
            NodeLost: it has no container there.
        """
        return on_their_hosts(self.hosts, [node])[0]

    # -- making

    def requests(self, cluster: str, shape: Shape, *, run: str | None) -> list[Request]:
        """What `create` asks of the manager; nothing is made."""
        return self._requests(cluster, shape, run, None)

    def _requests(self, cluster: str, shape: Shape, run: str | None, image: str | None) -> list[Request]:
        """The same with the id that the image has on every host: what has a name is looked for in a registry."""
        from lab.engine.docker.request import requests_for

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
        from lab.features.swarm.images import ensure_on_all

        self.requests(cluster, shape, run=run)  # refuses what cannot be, before images are sent
        image = shape.image or DEFAULT_IMAGE
        if shape.requirements:
            image = package_store(self).prepare(image, shape.requirements, announce=announce)
        identity = ensure_on_all(self.hosts, usable_hosts(self.hosts, shape.hosts), image, announce)
        if self.hosts.networks([f"{label.CLUSTER}={cluster}"]):
            raise ClusterUnfit(f"the swarm has a cluster {cluster} already", "use another name with --name")
        register_cluster(self.name, cluster)
        try:
            if self._settings.shared is not None:
                self._in_shared(["mkdir", "-m", "755", f"/all/{cluster}"], cluster, identity)
            elif len(self.hosts.known) > 1:
                announce(
                    "warning: nodes share /shared with those on the same host only; docs/swarm.md says how with all"
                )
            create(self.hosts, cluster, self._requests(cluster, shape, run, identity), image, announce)
            return find_clusters(self.hosts, self.name, cluster)[0]
        except BaseException as error:
            with uninterrupted(), suppress(LabError):
                self.remove(cluster, settle=True)
            if isinstance(error, Refused):
                raise ClusterError(
                    f"Swarm could not make cluster {cluster}: {error.explanation}", error.hint
                ) from error
            raise

    def _in_shared(self, command: Sequence[str], cluster: str, image: str) -> None:
        """Run a command, in a container of an image, on the folder that hosts share, which it sees as /all."""
        from lab.features.swarm.images import run_in_folder

        labels = {OWNER: label.owner(), label.CLUSTER: cluster}
        run_in_folder(self.hosts.manager, image, str(self._settings.shared), command, labels)

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
            for node, there in zip(nodes, on_their_hosts(self.hosts, nodes), strict=True):
                stream = self.hosts.engine(node.host).connection.attach(there.handle)
                channels.append(TaskChannel(node, stream, there.handle))
        except (Refused, EngineUnavailable) as error:
            for channel in channels:
                channel.close()
            raise NodeLost(f"cluster {cluster.name}: a node cannot be reached: {error.message}") from error
        return channels

    def stop(self, nodes: Sequence[Node]) -> None:
        """Kill nodes, where they run, and have them found as stopped until they are started."""
        stop(self.hosts, nodes)

    def start(self, cluster: ClusterInfo, nodes: Sequence[Node], *, announce: Announce) -> None:
        """Have Swarm make the tasks of nodes that do not run anew, and wait until their agents can fork workers."""
        start(self.hosts, cluster, nodes, announce)

    def execute(self, cluster: ClusterInfo, node: Node, argv: Sequence[str], *, tty: bool) -> int:
        """Run a command in a node with this process's standard streams; returns its exit code."""
        return self.hosts.engine(node.host).execute(cluster, self.there(node), argv, tty=tty)

    def ask_python(self, cluster: ClusterInfo, program: str) -> str:
        """What a program prints that the Python of the first node runs."""
        first = self.there(cluster.nodes[0])
        return self.hosts.engine(first.host).ask_python(replace(cluster, nodes=(first,)), program)

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
        sweep(self.hosts)
        asked, hosts = filters(cluster), self.hosts
        services, networks = hosts.services(asked), hosts.networks(asked)
        names = {service["Spec"]["Labels"][label.CLUSTER] for service in services}
        names |= {network["Labels"][label.CLUSTER] for network in networks}
        remember(hosts.known, names)
        for service in services:
            hosts.remove(f"services/{service['ID']}")

        def remove_from(name: str) -> Removed:
            hosts.await_sign(name)
            return remove_from_host(hosts.engine(name).connection, asked, _SETTLE_S if settle else 0.0)

        on_hosts = hosts.each(remove_from, hosts.known)
        silent = tuple(name for name in hosts.known if name not in on_hosts)
        containers = sum(on_hosts.values(), Removed())
        names |= {*containers.clusters}
        for network in networks:
            self._remove_network(network, silent)
        if self._settings.shared is not None and services:
            image = services[0]["Spec"]["TaskTemplate"]["ContainerSpec"]["Image"]
            with suppress(LabError):  # files that nobody needs any more
                self._in_shared(["rm", "-rf", "--", *(f"/all/{name}" for name in sorted(names))], min(names), image)
        forget(on_hosts, names)
        forget_cluster(self.name, cluster)
        return Removed(
            clusters=tuple(sorted(names)),
            nodes=len(services) or containers.nodes,
            networks=len(networks),
            volumes=containers.volumes,
            later=silent if names else (),
        )

    def _remove_network(self, network: Mapping[str, Any], silent: Sequence[str]) -> None:
        """Remove a network as soon as Swarm has taken note that no task is on it any more.

        Raises:
            ClusterError: it was not in time.
        """
        identity = network["Id"]

        def is_gone() -> bool:
            removed = self.hosts.remove(f"networks/{identity}")
            return removed or all(one["Id"] != identity for one in self.hosts.networks([]))

        if not wait_until(is_gone, _NETWORK_GONE_S, _LOOK_S):
            raise ClusterError(
                f"Swarm did not remove network {network['Name']} within {format_duration(_NETWORK_GONE_S)}",
                f"host {listing(silent)} does not answer" if silent else "`lab down` tries again",
            )

    def examine(self, wanted: Wanted) -> list[Check]:
        """What `lab doctor` has to say about this engine."""
        from lab.features.swarm.doctor import examine

        return examine(self.hosts, self._settings, wanted)
