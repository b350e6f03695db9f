"""The docker engine: a node is a container on a user-defined bridge network, with an agent as its main process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from lab.engine import ownership as label
from lab.engine.docker import state
from lab.engine.docker.connection import Connection, DockerChannel, Refused
from lab.engine.interrupts import uninterrupted
from lab.engine.protocol import Announce, Channel, NodeState, Removed, Request, Traits, Trouble
from lab.errors import ClusterError, ClusterUnfit, ImageUnfit, LabError, NodeLost
from lab.plan.cluster import ClusterInfo, Node, Shape
from lab.plan.limits import Machine

if TYPE_CHECKING:
    import docker

    from lab.engine.doctor import Check, Wanted
    from lab.engine.protocol import Throttle

_SETTLE_S = 1.0
NO_TORCH = 71
FIND_PYTHON = (
    "for python in python3 python; do "
    "$python -c 'import importlib.util as u, sys; sys.exit(not u.find_spec(\"torch\"))' 2>/dev/null && "
    f'exec $python -c "$0" "$@"; done; exit {NO_TORCH}'
)


class DockerEngine:
    """Clusters of containers.

    Args:
        client: docker-py's client; None: see `Connection`.
        connection: to the engine, where there is one already.
    """

    name = state.ENGINE
    traits = Traits(isolates=True, containers=True, divides_cores=True)

    def __init__(self, client: docker.DockerClient | None = None, connection: Connection | None = None) -> None:
        self.connection = connection or Connection(client)

    # -- finding

    def find(self, cluster: str | None = None) -> list[ClusterInfo]:
        """The owner's clusters that exist, wholly or in part, by their labels."""
        return state.find(self.connection, cluster)

    def nodeless(self) -> list[str]:
        """Names of the owner's clusters of which something is there, but no node."""
        return state.nodeless(self.connection)

    def node_state(self, node: Node) -> NodeState:
        """What became of a node."""
        return state.node_state(self.connection, node)

    def trouble(self, channel: Channel) -> Trouble | None:
        """What keeps a node from working although it is there."""
        return state.trouble(self.connection, channel.node)

    def memory_bytes(self, node: Node) -> int | None:
        """Memory that a node uses, without what the kernel can take back."""
        return state.memory_bytes(self.connection, node)

    # -- making

    def requests(self, cluster: str, shape: Shape, *, run: str | None) -> list[Request]:
        """What `create` asks of Docker's API; nothing is made."""
        from lab.engine.docker.request import cost_of, requests_for
        from lab.engine.protocol import refuse_for_one_host
        from lab.plan.limits import FEW_RANKS, refuse_crowd

        refuse_for_one_host(shape, self.name)
        machine = self.machine()
        if shape.nodes * shape.nproc_per_node > FEW_RANKS:
            refuse_crowd(shape.nodes, shape.nproc_per_node, machine.room, cost_of(shape))
        image = None
        if shape.requirements:
            from lab.engine.packages import package_store

            image = package_store(self).name_of(shape.image, shape.requirements)
        return requests_for(cluster, shape, owner=label.owner(), run=run, machine=machine, image=image)

    def machine(self) -> Machine:
        """The machine that nodes run on."""
        from lab.engine.docker.request import is_here, room_for

        facts = self.connection.ask("GET", "/info")
        return Machine(
            cores=int(facts["NCPU"]),
            memory_bytes=int(facts["MemTotal"]),
            free_disk_bytes=_free_bytes(facts) if is_here(facts) else None,
            room=room_for(facts),
        )

    def create(self, cluster: str, shape: Shape, *, run: str | None, announce: Announce) -> ClusterInfo:
        """Make every node and wait until its agent can fork workers; after an error nothing is left."""
        from lab.engine.docker.create import create
        from lab.engine.docker.image import DEFAULT_IMAGE, ensure_image

        if shape.gpus:
            from lab.engine.doctor import refuse_missing

            refuse_missing(shape.gpus)
        image = shape.image or DEFAULT_IMAGE
        if shape.requirements:
            from lab.engine.packages import package_store

            package_store(self).prepare(image, shape.requirements, announce=announce)
        else:
            ensure_image(self.connection.client, image, announce)
        if shape.volumes and image != DEFAULT_IMAGE:
            from lab.engine.docker.request import refuse_volumes_over_programs

            refuse_volumes_over_programs(self.connection, image, shape)
        try:
            return create(self.connection, cluster, self.requests(cluster, shape, run=run), announce)
        except BaseException as error:
            if not _taken(error):
                with uninterrupted(), suppress(LabError):
                    self.remove(cluster, settle=True)
            if not isinstance(error, Refused):
                raise
            if error.status == 404 and "no such image" in error.explanation.lower():
                raise ImageUnfit(f"the engine has no image {image}", "build it with `lab image build`") from error
            said = f"the engine could not make cluster {cluster}: {error.explanation}"
            if "already" in error.explanation:  # another owner has one of that name
                raise ClusterUnfit(said, "use another name with --name") from error
            raise ClusterError(said, error.hint) from error

    def has_image(self, image: str) -> bool:
        """Whether nodes can be made of an image without pulling it."""
        from lab.engine.docker.image import DEFAULT_IMAGE, inspect_image

        return image == DEFAULT_IMAGE or inspect_image(self.connection.client, image) is not None

    def image_connection(self) -> Connection:
        """To the Docker engine that makes images."""
        return self.connection

    # -- using

    def connect(self, cluster: ClusterInfo, nodes: Sequence[Node]) -> list[Channel]:
        """Open a channel to the agent of each of these nodes."""
        try:
            streams = self.connection.attach_all([node.handle for node in nodes])
        except Refused as refused:
            raise NodeLost(f"cluster {cluster.name}: a node cannot be reached: {refused.explanation}") from refused
        return [DockerChannel(node, stream) for node, stream in zip(nodes, streams, strict=True)]

    def kill(self, node: Node) -> None:
        """Kill a node at once, as a power cut would."""
        self.connection.act(node.handle, "kill")

    def stop(self, nodes: Sequence[Node]) -> None:
        """Kill nodes, where they run, and have them found as stopped until they are started."""
        from lab.engine.docker.create import stop

        stop(self.connection, nodes)

    def start(self, cluster: ClusterInfo, nodes: Sequence[Node], *, announce: Announce) -> None:
        """Start nodes that do not run, as they were made, and wait until their agents can fork workers."""
        from lab.engine.docker.create import start

        start(self.connection, cluster, nodes, announce)

    def pause(self, node: Node) -> None:
        """Have every process of a node stand still."""
        if not self.paused(node):
            self.connection.act(node.handle, "pause")

    def resume(self, node: Node) -> None:
        """Have them go on, where they stand still."""
        if self.paused(node):
            self.connection.act(node.handle, "unpause")

    def paused(self, node: Node) -> bool:
        """Whether they stand still."""
        from lab.engine.docker.create import paused

        return paused(self.connection, node)

    def limit(self, node: Node, cpus: float | None, memory_bytes: int | None) -> None:
        """Let a node use no more than this from now on."""
        from lab.engine.docker.create import limit

        limit(self.connection, node, cpus, memory_bytes)

    def throttle(self, node: Node) -> Throttle:
        """What a node may use now."""
        from lab.engine.docker.create import throttle

        return throttle(self.connection, node, self.machine())

    def execute(self, cluster: ClusterInfo, node: Node, argv: Sequence[str], *, tty: bool) -> int:
        """Run a command in a node with this process's standard streams; returns its exit code."""
        from lab.engine.docker.execute import execute

        try:
            return self.connection.call(lambda: execute(self.connection.api, node, list(argv), tty=tty))
        except Refused as refused:
            raise ClusterError(f"{node.name} cannot run {argv[0]!r}: {refused.explanation}") from refused

    def ask_python(self, cluster: ClusterInfo, program: str) -> str:
        """What a program prints that the first Python with torch of a node runs."""
        from lab.engine.packages import ENVIRONMENT, package_folders

        command = ["/bin/sh", "-c", FIND_PYTHON, program, package_folders(ENVIRONMENT)]

        def ask() -> str:
            started = self.connection.api.exec_create(cluster.nodes[0].handle, command, stderr=False)
            return bytes(self.connection.api.exec_start(started["Id"])).decode("utf-8", "replace")

        return self.connection.call(ask)

    def read_files(self, node: Node, path: str) -> IO[bytes]:
        """A file or folder of a node as a tar, which comes while it is read."""
        from lab.engine.archive import stream_pieces

        call = self.connection.call
        try:
            pieces = iter(call(lambda: self.connection.api.get_archive(node.handle, path)[0]))
        except Refused as refused:
            raise ClusterError(f"cannot read {path} on {node.name}: {_why(refused)}") from refused
        return stream_pieces(iter(lambda: call(lambda: next(pieces, b"")), b""), getattr(pieces, "close", lambda: None))

    def write_files(self, node: Node, folder: str, archive: IO[bytes]) -> None:
        """Unpack a tar into a folder of a node."""
        try:
            self.connection.call(lambda: self.connection.api.put_archive(node.handle, folder, archive))
        except Refused as refused:
            raise ClusterError(f"cannot write into {folder} on {node.name}: {_why(refused)}") from refused

    # -- removing

    def remove(self, cluster: str | None, *, settle: bool = False) -> Removed:
        """Remove the owner's cluster of this name, or all of them, by their labels."""
        from lab.engine.docker.state import remove

        return remove(self.connection, state.filters(cluster), settle_s=_SETTLE_S if settle else 0.0)

    def examine(self, wanted: Wanted) -> list[Check]:
        """What `lab doctor` has to say about this engine."""
        from lab.engine.docker.doctor import examine

        return examine(self.connection, wanted)


def _free_bytes(facts: Mapping[str, Any]) -> int | None:
    """What is free where the engine keeps containers, which is on this machine."""
    try:
        disk = os.statvfs(facts["DockerRootDir"])
    except (OSError, KeyError):
        return None
    return disk.f_bavail * disk.f_frsize


def _taken(error: BaseException) -> bool:
    """Whether nothing was made because somebody else, with other locks, has just made a cluster of that name."""
    return isinstance(error, Refused) and error.status == 409 and "network" in error.explanation


def _why(refused: Refused) -> str:
    return "No such file or directory" if refused.status == 404 else refused.explanation
