"""The docker engine: a node is a container on a user-defined bridge network, with an agent as its main process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lab.engine import ownership as label
from lab.engine.docker.connection import Connection, DockerChannel, Refused
from lab.engine.docker.state import STOPPED_SUFFIX, find_clusters, find_rest, owner_labels, remove_labelled
from lab.engine.interrupts import defer_interrupts
from lab.engine.protocol import AGENT_STOPPED, Announce, Channel, NodeState, Removed, Request, Throttle, Traits, Trouble
from lab.errors import ClusterError, ClusterUnfit, ImageUnfit, LabError, NodeLost
from lab.plan.cluster import ClusterInfo, Node, Shape
from lab.plan.limits import FEW_RANKS, Machine, refuse_excess_nodes
from lab.polling import map_parallel

if TYPE_CHECKING:
    from lab.engine.doctor import Check, Wanted

_SETTLE_S = 1.0
_POLL_TIMEOUT_S = 2.0
"""Longest delay of a run by an engine that does not answer."""
_NEVER = "0001-01-01"
"""The engine's notation for a time that has not come."""
_OOM_BEFORE_END_S = 2.0
"""A container ends at most this much later than its killed agent, because its memory is released first."""
_EVENT_DELAY_S = 1.0
"""A busy engine may report the event this much after the end."""
_GONE = 404
_CONFLICT = 409
"""The engine's answer if a container does not run, or a name is used."""
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
        """Return the owner's existing clusters, complete or not, by their labels."""
        return find_clusters(self.connection, self.name, cluster)

    def nodeless(self) -> list[str]:
        """Return the names of the owner's clusters that have a network, a volume, or a zygote, but no node."""
        networks, volumes = find_rest(self.connection, owner_labels(None))
        zygotes = self.connection.containers([*owner_labels(None), label.ZYGOTE])
        names = {item["Labels"][label.CLUSTER] for item in (*networks, *volumes, *zygotes)}
        return sorted(names - {info.name for info in self.find()})

    def node_state(self, node: Node) -> NodeState:
        """Return how a node ended."""
        facts = self.connection.request_existing("GET", f"/containers/{node.handle}/json")
        state: dict[str, Any] = json.loads(facts)["State"] if facts else {"Status": "dead"}
        if state["Status"] in ("removing", "dead"):  # every removal kills it first
            return NodeState(running=False, gone=True)
        running = bool(state["Running"])
        return NodeState(
            running=running,
            exit_code=state["ExitCode"],
            out_of_memory=bool(state["OOMKilled"]) and not running and self._ended_by_oom(node, state),
            restarted=running and not state.get("FinishedAt", _NEVER).startswith(_NEVER),
        )

    def _ended_by_oom(self, node: Node, state: Mapping[str, Any]) -> bool:
        """Return whether lack of memory ended a container, not only one of its workers at some earlier time.

        `OOMKilled` stays set once the kernel has killed any process of a container. So the events around the end
        decide: the kernel killed a process, and no client had the engine kill the container.
        """
        from datetime import datetime  # imported late: nodes are rarely lost
        from urllib.parse import quote

        asked = quote(json.dumps({"container": [node.handle], "event": ["oom", "kill"]}))
        try:
            ended = datetime.fromisoformat(state["FinishedAt"]).timestamp()
            span = f"since={ended - _OOM_BEFORE_END_S:.6f}&until={ended + _EVENT_DELAY_S:.6f}"
            answer = self.connection.request("GET", f"/events?{span}&filters={asked}")
            happened = {json.loads(line)["Action"] for line in answer.splitlines() if line.strip()}
        except (Refused, ValueError, KeyError):  # the engine does not report events
            return True
        return "oom" in happened and "kill" not in happened

    def trouble(self, channel: Channel) -> Trouble | None:
        """Return why an existing node does not work."""
        container = channel.node.handle
        try:
            facts = self.connection.inspect(container, _POLL_TIMEOUT_S)
        except Refused:
            return None  # it is gone: its closed channel reports that
        if facts["State"]["Paused"]:
            return Trouble("was paused", silent=True)
        if not facts["State"]["Running"]:
            return None
        if _is_stopped(facts["State"]["Pid"], container):
            return AGENT_STOPPED
        connected = facts["NetworkSettings"]["Networks"]
        return None if connected else Trouble("was disconnected from its network", silent=False)

    def memory_bytes(self, node: Node) -> int | None:
        """Return the memory that a node uses, without memory that the kernel can reclaim."""
        answer = self.connection.ask("GET", f"/containers/{node.handle}/stats?stream=0&one-shot=1")
        stats = (answer or {}).get("memory_stats", {})  # the answer is empty if the container has just ended
        detail = stats.get("stats", {})
        reclaimable = detail.get("total_inactive_file", detail.get("inactive_file", 0))
        return max(0, stats["usage"] - reclaimable) if "usage" in stats else None

    # -- creating

    def requests(self, cluster: str, shape: Shape, *, run: str | None) -> list[Request]:
        """Return what `create` requests of Docker's API; create nothing."""
        from lab.engine.docker.request import cost_of, requests_for
        from lab.engine.protocol import refuse_for_one_host

        refuse_for_one_host(shape, self.name)
        machine = self.machine()
        if shape.nodes * shape.nproc_per_node > FEW_RANKS:
            refuse_excess_nodes(shape.nodes, shape.nproc_per_node, machine.capacity, cost_of(shape))
        image = None
        if shape.requirements:
            from lab.engine.packages import package_store

            image = package_store(self).name_of(shape.image, shape.requirements)
        return requests_for(cluster, shape, owner=label.current_owner(), run=run, machine=machine, image=image)

    def machine(self) -> Machine:
        """Return the machine that nodes run on."""
        from lab.engine.docker.request import capacity_of, is_here

        facts = self.connection.ask("GET", "/info")
        cores, memory_bytes = int(facts["NCPU"]), int(facts["MemTotal"])
        free_bytes, capacity = _free_bytes(facts) if is_here(facts) else None, capacity_of(facts)
        return Machine(cores=cores, memory_bytes=memory_bytes, free_disk_bytes=free_bytes, capacity=capacity)

    def create(self, cluster: str, shape: Shape, *, run: str | None, announce: Announce) -> ClusterInfo:
        """Create every node, and wait until its agent can fork workers; after an error nothing is left."""
        from lab.engine.docker.create import create_cluster
        from lab.engine.docker.image import DEFAULT_IMAGE, ensure_image

        if shape.gpus:
            from lab.engine.doctor import refuse_missing

            refuse_missing(shape.gpus, shape.nodes)
        image = shape.image or DEFAULT_IMAGE
        if shape.requirements:
            from lab.engine.packages import package_store

            package_store(self).prepare(image, shape.requirements, announce=announce)
        else:
            ensure_image(self.connection, image, announce)
        if shape.volumes and image != DEFAULT_IMAGE:
            from lab.engine.docker.request import refuse_volumes_over_programs

            refuse_volumes_over_programs(self.connection, image, shape)
        requests = self.requests(cluster, shape, run=run)  # raises before anything exists that needs removal
        try:
            if (lost := create_cluster(self.connection, cluster, requests, announce)) is not None:
                raise self.explain_lost(lost, image)
            return self.find(cluster)[0]
        except BaseException as error:
            refused = error if isinstance(error, Refused) else None
            # a network of this name exists: another owner, with other locks, has just created such a cluster
            if refused is None or refused.status != _CONFLICT or "network" not in refused.explanation:
                with defer_interrupts(), suppress(LabError):
                    self.remove(cluster, settle=True)
            if refused is None:
                raise
            if refused.status == _GONE and "no such image" in refused.explanation.lower():
                raise ImageUnfit(f"the engine has no image {image}", "build it with `lab image build`") from error
            message = f"the engine could not make cluster {cluster}: {refused.explanation}"
            if "already" in refused.explanation:  # another owner has one of this name
                raise ClusterUnfit(message, "use another name with --name") from error
            raise ClusterError(message, refused.hint) from error

    def explain_lost(self, channel: Channel, image: str) -> LabError:
        """Return the error for a node of this image that ended while it was starting."""
        state = self.node_state(channel.node)
        complaints = getattr(channel, "complaints", b"").decode("utf-8", "replace").strip().splitlines()
        last = f": {complaints[-1]}" if complaints else ""
        if state.exit_code == NO_TORCH:
            return ImageUnfit(f"image {image} has no Python that can import torch", "use an image with torch installed")
        hint = "raise --memory" if state.out_of_memory or state.exit_code == 137 else "`lab doctor` checks the engine"
        return ClusterError(f"{channel.node.name} {state.sentence()} while it was starting{last}", hint)

    def has_image(self, image: str) -> bool:
        """Return whether nodes can be created from an image without pulling it."""
        from lab.engine.docker.image import DEFAULT_IMAGE, inspect_image

        return image == DEFAULT_IMAGE or inspect_image(self.connection, image) is not None

    # -- using

    def connect(self, cluster: ClusterInfo, nodes: Sequence[Node]) -> list[Channel]:
        """Open a channel to the agent of each of these nodes."""
        try:
            return [*map(DockerChannel, nodes, self.connection.attach(*(node.handle for node in nodes)))]
        except Refused as refused:
            raise NodeLost(f"cannot connect to a node of cluster {cluster.name}: {refused.explanation}") from refused

    def kill(self, node: Node) -> None:
        """Kill a node at once, as a power cut would."""
        self.connection.act(node.handle, "kill")

    def stop(self, nodes: Sequence[Node]) -> None:
        """Kill running nodes, and report them as stopped until they are started."""
        map_parallel(self._stop, nodes)

    def _stop(self, node: Node) -> None:
        try:
            self.kill(node)
        except Refused as refused:
            if refused.status != _CONFLICT:
                raise
        self._rename(node, STOPPED_SUFFIX)

    def _rename(self, node: Node, suffix: str) -> None:
        """Give a container the name that marks it as stopped, or its original name."""
        has = str(self.connection.inspect(node.handle)["Name"]).lstrip("/")
        if (wanted := has.removesuffix(STOPPED_SUFFIX) + suffix) != has:
            self.connection.act(node.handle, f"rename?name={wanted}")

    def start(self, cluster: ClusterInfo, nodes: Sequence[Node], *, announce: Announce) -> None:
        """Start nodes that do not run, as they were created, and wait until their agents can fork workers."""
        from lab.engine.docker.create import start_nodes

        if not nodes:
            return
        for node in nodes:
            self._rename(node, "")
        made = self.connection.inspect(nodes[0].handle)
        lost = start_nodes(self.connection, cluster.name, nodes, announce, forked=made["HostConfig"]["Init"] is False)
        if lost is not None:
            raise self.explain_lost(lost, made["Config"]["Image"])

    def pause(self, node: Node) -> None:
        """Pause every process of a node."""
        if not self.paused(node):
            self.connection.act(node.handle, "pause")

    def resume(self, node: Node) -> None:
        """Resume every process of a node, if it is paused."""
        if self.paused(node):
            self.connection.act(node.handle, "unpause")

    def paused(self, node: Node) -> bool:
        """Return whether a node is paused."""
        return bool(self.connection.inspect(node.handle)["State"]["Paused"])

    def limit(self, node: Node, cpus: float | None, memory_bytes: int | None) -> None:
        """Set new limits of a node; swap does not extend the memory limit."""
        limits = {} if cpus is None else {"NanoCpus": int(cpus * _PER_CORE)}
        limits |= {} if memory_bytes is None else {"Memory": memory_bytes, "MemorySwap": memory_bytes}
        self.connection.act(node.handle, "update", limits)

    def throttle(self, node: Node) -> Throttle:
        """Return the current limits of a node."""
        limits, machine = self.connection.inspect(node.handle)["HostConfig"], self.machine()
        return Throttle((limits["NanoCpus"] / _PER_CORE) or machine.cores, limits["Memory"] or machine.memory_bytes)

    def execute(self, cluster: ClusterInfo, node: Node, argv: Sequence[str], *, tty: bool) -> int:
        """Run a command in a node with this process's standard streams; return its exit code."""
        from lab.engine.docker.execute import run_command

        try:
            return run_command(self.connection, node, argv, tty=tty)
        except Refused as refused:
            raise ClusterError(f"{node.name} cannot run {argv[0]!r}: {refused.explanation}") from refused

    def ask_python(self, cluster: ClusterInfo, program: str) -> str:
        """Return the output of a program that the first Python with torch of a node runs."""
        from lab.engine.packages import ENVIRONMENT, package_folders

        command = ["/bin/sh", "-c", FIND_PYTHON, program, package_folders(ENVIRONMENT)]

        def ask() -> str:
            started = self.connection.api.exec_create(cluster.nodes[0].handle, command, stderr=False)
            return bytes(self.connection.api.exec_start(started["Id"])).decode("utf-8", "replace")

        return self.connection.call(ask)

    def read_files(self, node: Node, path: str) -> Iterator[bytes]:
        """Return a file or folder of a node as a tar, read on demand."""
        try:
            return self.connection.read_archive(node.handle, path)
        except Refused as refused:
            raise ClusterError(f"cannot read {path} on {node.name}: {_why(refused)}") from refused

    def write_files(self, node: Node, path: str, archive: Iterator[bytes]) -> None:
        """Create a file or folder of a node from a tar."""
        folder = os.path.dirname(path)
        try:
            self.connection.call(lambda: self.connection.api.put_archive(node.handle, folder, archive))
        except Refused as refused:
            raise ClusterError(f"cannot write into {folder} on {node.name}: {_why(refused)}") from refused

    # -- removing

    def remove(self, cluster: str | None, *, settle: bool = False) -> Removed:
        """Remove the owner's cluster of this name, or all of them, by their labels."""
        return remove_labelled(self.connection, owner_labels(cluster), settle_s=_SETTLE_S if settle else 0.0)

    def examine(self, wanted: Wanted) -> list[Check]:
        """Return the checks of `lab doctor` for this engine."""
        from lab.engine.docker.doctor import examine_engine

        return examine_engine(self.connection, wanted)


def _is_stopped(first: int, container: str) -> bool:
    """Return whether a signal has stopped a container's first process, or its only child, the agent.

    The engine does not report this. If the engine is on this machine, there is a process of that number which belongs
    to the container according to the kernel.
    """
    from lab.node import processes  # a slow import that a short run does not need

    try:
        with open(f"/proc/{first}/cgroup") as groups, open(f"/proc/{first}/task/{first}/children") as children:
            if container not in groups.read():
                return False
            return any(map(processes.is_stopped, (first, *map(int, children.read().split()))))
    except OSError:
        return False


def _free_bytes(facts: Mapping[str, Any]) -> int | None:
    """Return the free bytes of the engine's container storage, which is on this machine."""
    try:
        disk = os.statvfs(facts["DockerRootDir"])
    except (OSError, KeyError):
        return None
    return disk.f_bavail * disk.f_frsize


def _why(refused: Refused) -> str:
    return "No such file or directory" if refused.status == _GONE else refused.explanation
