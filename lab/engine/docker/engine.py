"""The docker engine: a node is a container on a user-defined bridge network, with an agent as its main process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from lab.engine import ownership as label
from lab.engine.docker.connection import Connection, DockerChannel, Refused
from lab.engine.docker.state import STOPPED_SUFFIX, filters, find_clusters, find_rest, remove
from lab.engine.interrupts import uninterrupted
from lab.engine.protocol import AGENT_STOPPED, Announce, Channel, NodeState, Removed, Request, Throttle, Traits, Trouble
from lab.errors import ClusterError, ClusterUnfit, ImageUnfit, LabError, NodeLost
from lab.plan.cluster import ClusterInfo, Node, Shape
from lab.plan.limits import Machine

if TYPE_CHECKING:
    from lab.engine.doctor import Check, Wanted

_SETTLE_S = 1.0
_LOOK_TIMEOUT_S = 2.0
"""A run is not held up for longer by an engine that does not answer."""
_NEVER = "0001-01-01"
"""How the engine writes a time that has not come."""
_OOM_BEFORE_END_S = 2.0
"""A container ends at most so long after the kernel has killed its agent: the rest of its memory is returned first."""
_EVENT_DELAY_S = 1.0
"""The engine may tell of it after the end, where it is busy."""
_GONE = 404
_CONFLICT = 409
"""What it answers where a container does not run, or a name is used."""
_PER_CORE = 1_000_000_000
NO_TORCH = 71
FIND_PYTHON = (
    "for python in python3 python; do "
    "$python -c 'import importlib.util as u, sys; sys.exit(not u.find_spec(\"torch\"))' 2>/dev/null && "
    f'exec $python -c "$0" "$@"; done; exit {NO_TORCH}'
)


class DockerEngine:
    """Clusters of containers."""

    name = "docker"
    traits = Traits(isolates=True, containers=True, divides_cores=True)

    def __init__(self) -> None:
        self.connection = Connection()

    # -- finding

    def find(self, cluster: str | None = None) -> list[ClusterInfo]:
        """The owner's clusters that exist, wholly or in part, by their labels."""
        return find_clusters(self.connection, self.name, cluster)

    def nodeless(self) -> list[str]:
        """Names of the owner's clusters of which a network, a volume or a zygote is there, but no node."""
        networks, volumes = find_rest(self.connection, filters(None))
        zygotes = self.connection.containers([*filters(None), label.ZYGOTE])
        names = {item["Labels"][label.CLUSTER] for item in (*networks, *volumes, *zygotes)}
        return sorted(names - {info.name for info in self.find()})

    def node_state(self, node: Node) -> NodeState:
        """What became of a node."""
        facts = self.connection.request_existing("GET", f"/containers/{node.handle}/json")
        state: dict[str, Any] = json.loads(facts)["State"] if facts else {"Status": "dead"}
        if state["Status"] in ("removing", "dead"):  # it is killed first, whoever removes it
            return NodeState(running=False, gone=True)
        running = bool(state["Running"])
        return NodeState(
            running=running,
            exit_code=state["ExitCode"],
            out_of_memory=bool(state["OOMKilled"]) and not running and self._ended_by_oom(node, state),
            restarted=running and not state.get("FinishedAt", _NEVER).startswith(_NEVER),
        )

    def _ended_by_oom(self, node: Node, state: Mapping[str, Any]) -> bool:
        """Whether lack of memory ended a container, of which only a worker may have been killed for that, long ago.

        `OOMKilled` stays set once the kernel has killed any process of a container. So the events around the end
        decide: the kernel killed something, and nobody had the engine kill the container.
        """
        from datetime import datetime  # mostly no node is lost
        from urllib.parse import quote

        asked = quote(json.dumps({"container": [node.handle], "event": ["oom", "kill"]}))
        try:
            ended = datetime.fromisoformat(state["FinishedAt"]).timestamp()
            span = f"since={ended - _OOM_BEFORE_END_S:.6f}&until={ended + _EVENT_DELAY_S:.6f}"
            answer = self.connection.request("GET", f"/events?{span}&filters={asked}")
            happened = {json.loads(line)["Action"] for line in answer.splitlines() if line.strip()}
        except (Refused, ValueError, KeyError):  # an engine that cannot say it
            return True
        return "oom" in happened and "kill" not in happened

    def trouble(self, channel: Channel) -> Trouble | None:
        """What keeps a node from working although it is there."""
        container = channel.node.handle
        try:
            facts = self.connection.inspect(container, _LOOK_TIMEOUT_S)
        except Refused:
            return None  # it is gone: its channel tells that
        if facts["State"]["Paused"]:
            return Trouble("was paused", silent=True)
        if not facts["State"]["Running"]:
            return None
        if _is_stopped(facts["State"]["Pid"], container):
            return AGENT_STOPPED
        connected = facts["NetworkSettings"]["Networks"]
        return None if connected else Trouble("was disconnected from its network", silent=False)

    def memory_bytes(self, node: Node) -> int | None:
        """Memory that a node uses, without what the kernel can take back."""
        answer = self.connection.ask("GET", f"/containers/{node.handle}/stats?stream=0&one-shot=1")
        stats = (answer or {}).get("memory_stats", {})  # an engine whose container has just ended answers nothing
        detail = stats.get("stats", {})
        reclaimable = detail.get("total_inactive_file", detail.get("inactive_file", 0))
        return max(0, stats["usage"] - reclaimable) if "usage" in stats else None

    # -- making

    def requests(self, cluster: str, shape: Shape, *, run: str | None) -> list[Request]:
        """What `create` asks of Docker's API; nothing is made."""
        from lab.engine.docker.request import cost_of, requests_for
        from lab.engine.protocol import refuse_for_one_host
        from lab.plan.limits import FEW_RANKS, refuse_excess_nodes

        refuse_for_one_host(shape, self.name)
        machine = self.machine()
        if shape.nodes * shape.nproc_per_node > FEW_RANKS:
            refuse_excess_nodes(shape.nodes, shape.nproc_per_node, machine.capacity, cost_of(shape))
        image = None
        if shape.requirements:
            from lab.engine.packages import package_store

            image = package_store(self).name_of(shape.image, shape.requirements)
        return requests_for(cluster, shape, owner=label.owner(), run=run, machine=machine, image=image)

    def machine(self) -> Machine:
        """The machine that nodes run on."""
        from lab.engine.docker.request import capacity_of, is_here

        facts = self.connection.ask("GET", "/info")
        return Machine(
            cores=int(facts["NCPU"]),
            memory_bytes=int(facts["MemTotal"]),
            free_disk_bytes=_free_bytes(facts) if is_here(facts) else None,
            capacity=capacity_of(facts),
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
            ensure_image(self.connection, image, announce)
        if shape.volumes and image != DEFAULT_IMAGE:
            from lab.engine.docker.request import refuse_volumes_over_programs

            refuse_volumes_over_programs(self.connection, image, shape)
        try:
            lost = create(self.connection, cluster, self.requests(cluster, shape, run=run), announce)
            if lost is not None:
                raise self.explain_lost(lost, image)
            return self.find(cluster)[0]
        except BaseException as error:
            refused = error if isinstance(error, Refused) else None
            # a network of that name: somebody else, with other locks, has just made such a cluster
            if refused is None or refused.status != _CONFLICT or "network" not in refused.explanation:
                with uninterrupted(), suppress(LabError):
                    self.remove(cluster, settle=True)
            if refused is None:
                raise
            if refused.status == _GONE and "no such image" in refused.explanation.lower():
                raise ImageUnfit(f"the engine has no image {image}", "build it with `lab image build`") from error
            said = f"the engine could not make cluster {cluster}: {refused.explanation}"
            if "already" in refused.explanation:  # another owner has one of that name
                raise ClusterUnfit(said, "use another name with --name") from error
            raise ClusterError(said, refused.hint) from error

    def explain_lost(self, channel: Channel, image: str) -> LabError:
        """Why a node of this image ended while it was starting."""
        state = self.node_state(channel.node)
        said = getattr(channel, "complaints", b"").decode("utf-8", "replace").strip().splitlines()
        last = f": {said[-1]}" if said else ""
        if state.exit_code == NO_TORCH:
            return ImageUnfit(f"image {image} has no Python that can import torch", "use an image with torch installed")
        hint = "raise --memory" if state.out_of_memory or state.exit_code == 137 else "`lab doctor` may know more"
        return ClusterError(f"{channel.node.name} {state.sentence()} while it was starting{last}", hint)

    def has_image(self, image: str) -> bool:
        """Whether nodes can be made of an image without pulling it."""
        from lab.engine.docker.image import DEFAULT_IMAGE, inspect_image

        return image == DEFAULT_IMAGE or inspect_image(self.connection, image) is not None

    # -- using

    def connect(self, cluster: ClusterInfo, nodes: Sequence[Node]) -> list[Channel]:
        """Open a channel to the agent of each of these nodes."""
        try:
            return [DockerChannel(node, self.connection.attach(node.handle)) for node in nodes]
        except Refused as refused:
            raise NodeLost(f"cluster {cluster.name}: a node cannot be reached: {refused.explanation}") from refused

    def kill(self, node: Node) -> None:
        """Kill a node at once, as a power cut would."""
        self.connection.act(node.handle, "kill")

    def stop(self, nodes: Sequence[Node]) -> None:
        """Kill nodes, where they run, and have them found as stopped until they are started."""
        self.connection.together(self._stop, nodes)

    def _stop(self, node: Node) -> None:
        try:
            self.kill(node)
        except Refused as refused:
            if refused.status != _CONFLICT:
                raise
        self._rename(node, STOPPED_SUFFIX)

    def _rename(self, node: Node, suffix: str) -> None:
        """Give a container the name that it has while it is stopped, or the one that it was made with."""
        has = str(self.connection.inspect(node.handle)["Name"]).lstrip("/")
        wanted = has.removesuffix(STOPPED_SUFFIX) + suffix
        if wanted != has:
            self.connection.act(node.handle, f"rename?name={wanted}")

    def start(self, cluster: ClusterInfo, nodes: Sequence[Node], *, announce: Announce) -> None:
        """Start nodes that do not run, as they were made, and wait until their agents can fork workers."""
        from lab.engine.docker.create import start

        if not nodes:
            return
        for node in nodes:
            self._rename(node, "")
        made = self.connection.inspect(nodes[0].handle)
        lost = start(self.connection, cluster.name, nodes, announce, forked=made["HostConfig"]["Init"] is False)
        if lost is not None:
            raise self.explain_lost(lost, made["Config"]["Image"])

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
        return bool(self.connection.inspect(node.handle)["State"]["Paused"])

    def limit(self, node: Node, cpus: float | None, memory_bytes: int | None) -> None:
        """Let a node use no more than this from now on; swap is none of it."""
        limits = {} if cpus is None else {"NanoCpus": int(cpus * _PER_CORE)}
        limits |= {} if memory_bytes is None else {"Memory": memory_bytes, "MemorySwap": memory_bytes}
        self.connection.act(node.handle, "update", limits)

    def throttle(self, node: Node) -> Throttle:
        """What a node may use now."""
        limits, machine = self.connection.inspect(node.handle)["HostConfig"], self.machine()
        return Throttle((limits["NanoCpus"] / _PER_CORE) or machine.cores, limits["Memory"] or machine.memory_bytes)

    def execute(self, cluster: ClusterInfo, node: Node, argv: Sequence[str], *, tty: bool) -> int:
        """Run a command in a node with this process's standard streams; returns its exit code."""
        from lab.engine.docker.execute import execute

        try:
            return execute(self.connection, node, argv, tty=tty)
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

    def read_files(self, node: Node, path: str) -> Iterator[bytes]:
        """A file or folder of a node as a tar, which comes while it is read."""
        call = self.connection.call
        try:
            pieces = call(lambda: self.connection.api.get_archive(node.handle, path)[0])
        except Refused as refused:
            raise ClusterError(f"cannot read {path} on {node.name}: {_why(refused)}") from refused

        def read() -> Iterator[bytes]:
            with closing(pieces):  # the engine does nothing else with the container until all is read, or nobody reads
                while piece := call(lambda: next(pieces, b"")):
                    yield piece

        return read()

    def write_files(self, node: Node, path: str, archive: Iterator[bytes]) -> None:
        """Make a file or folder of a node of a tar."""
        folder = os.path.dirname(path)
        try:
            self.connection.call(lambda: self.connection.api.put_archive(node.handle, folder, archive))
        except Refused as refused:
            raise ClusterError(f"cannot write into {folder} on {node.name}: {_why(refused)}") from refused

    # -- removing

    def remove(self, cluster: str | None, *, settle: bool = False) -> Removed:
        """Remove the owner's cluster of this name, or all of them, by their labels."""
        return remove(self.connection, filters(cluster), settle_s=_SETTLE_S if settle else 0.0)

    def examine(self, wanted: Wanted) -> list[Check]:
        """What `lab doctor` has to say about this engine."""
        from lab.engine.docker.doctor import examine

        return examine(self.connection, wanted)


def _is_stopped(first: int, container: str) -> bool:
    """Whether a signal has stopped a container's first process, or the agent, which is the only child of that.

    The engine does not tell. It is seen where the engine is on this machine: there is a process of that number then, of
    which the kernel says that it is the container's.
    """
    from lab.node import processes  # takes a while to import, and a short run does not need it

    try:
        with open(f"/proc/{first}/cgroup") as groups, open(f"/proc/{first}/task/{first}/children") as children:
            if container not in groups.read():
                return False
            return any(map(processes.is_stopped, (first, *map(int, children.read().split()))))
    except OSError:
        return False


def _free_bytes(facts: Mapping[str, Any]) -> int | None:
    """What is free where the engine keeps containers, which is on this machine."""
    try:
        disk = os.statvfs(facts["DockerRootDir"])
    except (OSError, KeyError):
        return None
    return disk.f_bavail * disk.f_frsize


def _why(refused: Refused) -> str:
    return "No such file or directory" if refused.status == _GONE else refused.explanation
