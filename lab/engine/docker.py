"""The docker engine: a node is a container on a user-defined bridge network, with an agent as its main process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from lab import __version__
from lab.engine import ownership as label
from lab.engine.docker_channel import DockerChannel
from lab.engine.image import DEFAULT_IMAGE, ensure_image
from lab.engine.protocol import Announce, Channel, Finding, NodeState, Removed, Wanted
from lab.errors import ClusterError, EngineUnavailable, ImageError, LabError, NodeLost
from lab.plan.cluster import ClusterInfo, Node, Shape

if TYPE_CHECKING:
    import docker

T = TypeVar("T")
U = TypeVar("U")

_CALL_TIMEOUT_S = 60
_FIRST_ANSWER_S = 15
_SETTLE_S = 1.0


def open_client(timeout_s: int = _CALL_TIMEOUT_S) -> docker.DockerClient:
    """Connect to the engine that the docker command line would use.

    Raises:
        EngineUnavailable: none answers; the message says why.
    """
    import docker
    import docker.errors

    try:
        if "DOCKER_HOST" in os.environ:
            client = docker.from_env(timeout=_FIRST_ANSWER_S)
        else:
            context = docker.ContextAPI.get_current_context()
            host = context.Host
            client = (
                docker.DockerClient(base_url=host, timeout=_FIRST_ANSWER_S)
                if host
                else docker.from_env(timeout=_FIRST_ANSWER_S)
            )
    except (docker.errors.DockerException, OSError, ValueError) as error:
        raise EngineUnavailable(f"no Docker engine answers: {_root_cause(error)}", _fix_for(error)) from error
    client.api.timeout = timeout_s
    return client


def _root_cause(error: BaseException) -> str:
    text = str(error)
    if "Permission denied" in text:
        return "permission denied on its socket"
    if "No such file" in text or "FileNotFoundError" in text:
        return "its socket does not exist"
    if "Connection refused" in text:
        return "connection refused"
    return text.splitlines()[0][:200] if text else type(error).__name__


def _fix_for(error: BaseException) -> str:
    if "Permission denied" in str(error):
        return "add yourself to the group `docker`, or use `--engine local`"
    return "start Docker, set DOCKER_HOST, or use `--engine local`, which needs no Docker"


class DockerEngine:
    """Clusters of containers.

    Args:
        client: docker-py's client.
    """

    name = "docker"

    def __init__(self, client: docker.DockerClient | None = None) -> None:
        self.client = client or open_client()
        self.api = self.client.api

    # -- finding

    def find(self, cluster: str | None = None) -> list[ClusterInfo]:
        """The owner's clusters that exist, wholly or in part, by their labels."""
        found: dict[str, list[dict[str, Any]]] = {}
        filters = {"label": [*_filters(cluster), label.NODE]}
        for container in self.call(lambda: self.api.containers(all=True, filters=filters)):
            found.setdefault(container["Labels"][label.CLUSTER], []).append(container)
        return [_cluster_info(name, containers) for name, containers in sorted(found.items())]

    def node_state(self, node: Node) -> NodeState:
        """What became of a node.

        Raises:
            EngineUnavailable: the engine itself does not answer.
        """
        import docker.errors

        try:
            state = self.call(lambda: self.api.inspect_container(node.handle))["State"]
        except docker.errors.NotFound:
            return NodeState(running=False, gone=True)
        if state["Status"] in ("removing", "dead"):  # it is killed first, whoever removes it
            return NodeState(running=False, gone=True)
        return NodeState(
            running=bool(state["Running"]), exit_code=state["ExitCode"], out_of_memory=bool(state["OOMKilled"])
        )

    def memory_bytes(self, node: Node) -> int | None:
        """Memory that a node uses, without what the kernel can take back."""
        stats = self.call(lambda: self.api.stats(node.handle, stream=False, one_shot=True)).get("memory_stats", {})
        detail = stats.get("stats", {})
        reclaimable = detail.get("total_inactive_file", detail.get("inactive_file", 0))
        return max(0, stats["usage"] - reclaimable) if "usage" in stats else None

    # -- making

    def create(self, cluster: str, shape: Shape, *, run: str | None, announce: Announce) -> ClusterInfo:
        """Make every node and wait until its agent can fork workers; after an error nothing is left."""
        import docker.errors

        image = shape.image or DEFAULT_IMAGE
        ensure_image(self.client, image, lambda progress: announce(progress.text))
        labels = {
            label.CLUSTER: cluster,
            label.OWNER: label.owner(),
            label.VERSION: __version__,
            label.SHAPE: shape.to_json(),
            **({label.RUN: run} if run else {}),
        }
        try:
            from lab.engine.docker_create import create

            return create(self, cluster, shape, image, labels, announce)
        except BaseException as error:
            with suppress(LabError):
                self.remove(cluster, settle=True)
            if isinstance(error, docker.errors.ImageNotFound):
                raise ImageError(f"the engine has no image {image}", "build it with `lab image build`") from error
            if isinstance(error, docker.errors.APIError):
                hint = (
                    "use another name with --name"
                    if "already" in str(error.explanation)
                    else "`lab doctor` may know more"
                )
                raise ClusterError(f"the engine could not make cluster {cluster}: {error.explanation}", hint) from error
            raise

    # -- using

    def connect(self, cluster: ClusterInfo, nodes: Sequence[Node]) -> list[Channel]:
        """Open a channel to the agent of each of these nodes.

        Raises:
            NodeLost: one cannot be reached.
        """
        import docker.errors

        try:
            return list(self.together(self.attach, nodes))
        except docker.errors.APIError as error:
            raise NodeLost(f"cluster {cluster.name}: a node cannot be reached: {error.explanation}") from error

    def attach(self, node: Node) -> DockerChannel:
        """Open a channel to the agent of one node."""
        params = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        return DockerChannel(node, self.call(lambda: self.api.attach_socket(node.handle, params=params)))

    def kill(self, node: Node) -> None:
        """Kill a node at once, as a power cut would."""
        self.call(lambda: self.api.kill(node.handle))

    def execute(self, cluster: ClusterInfo, node: Node, argv: Sequence[str], *, tty: bool) -> int:
        """Run a command in a node with this process's standard streams; returns its exit code."""
        import docker.errors

        from lab.engine.docker_exec import execute

        try:
            return self.call(lambda: execute(self.api, node, list(argv), tty=tty))
        except docker.errors.APIError as error:
            raise ClusterError(f"{node.name} cannot run {argv[0]!r}: {error.explanation}") from error

    # -- removing

    def remove(self, cluster: str | None, *, settle: bool = False) -> Removed:
        """Remove the owner's cluster of this name, or all of them, by their labels."""
        from lab.engine.docker_remove import remove

        return remove(self, _filters(cluster), settle_s=_SETTLE_S if settle else 0.0)

    def examine(self, wanted: Wanted) -> list[Finding]:
        """What `lab doctor` has to say about this engine."""
        from lab.engine.docker_doctor import examine

        return examine(self, wanted)

    # -- calls

    def call(self, call: Callable[[], T]) -> T:
        """One call of the engine's API; an engine that does not answer becomes `EngineUnavailable`."""
        import requests.exceptions

        try:
            return call()
        except (requests.exceptions.ConnectionError, requests.exceptions.Timeout) as error:
            raise EngineUnavailable(
                f"the Docker engine stopped answering: {_root_cause(error)}", _fix_for(error)
            ) from error

    def together(self, action: Callable[[U], T], items: Iterable[U]) -> list[T]:
        """Do the same for each item at once; the first error is raised after all have ended."""
        items = list(items)
        if len(items) < 2:
            return [action(item) for item in items]
        with ThreadPoolExecutor(max_workers=min(4, len(items))) as pool:
            return list(pool.map(action, items))


def _filters(cluster: str | None) -> list[str]:
    filters = [f"{label.OWNER}={label.owner()}"]
    return [*filters, f"{label.CLUSTER}={cluster}"] if cluster else filters


def _cluster_info(name: str, containers: list[dict[str, Any]]) -> ClusterInfo:
    labels = containers[0]["Labels"]
    nodes = []
    for container in containers:
        node = container["Labels"][label.NODE]
        networks = container.get("NetworkSettings", {}).get("Networks", {})
        address = next((network["IPAddress"] for network in networks.values()), "")
        nodes.append(
            Node(
                name=node,
                node_rank=int(node.removeprefix("node")),
                handle=container["Id"],
                address=address,
                state=container["State"],
            )
        )
    return ClusterInfo(
        name=name,
        engine=DockerEngine.name,
        shape=Shape.from_json(labels[label.SHAPE]),
        nodes=tuple(sorted(nodes, key=lambda node: node.node_rank)),
        owner=labels[label.OWNER],
        run=labels.get(label.RUN),
        version=labels.get(label.VERSION, ""),
    )
