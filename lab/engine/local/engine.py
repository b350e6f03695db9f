"""The local engine: no Docker, no root. A node is a group of processes with a loopback address of its own.

One process imports torch and forks an agent for every node. A cluster lives in a folder below /tmp and in processes
that carry its label in their environment; both are found again without any memory of having made them.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING

from lab import DISTRIBUTION
from lab.engine.held import (
    ENDING_S,
    HeldEngine,
    LocalChannel,
    agent_pid,
    await_end,
    has_ended,
    node_variables,
    paused_file,
)
from lab.engine.local.state import (
    CONTROL,
    ENGINE,
    MARK,
    mark,
    node_state,
    nodeless,
    read_cluster,
)
from lab.engine.ownership import local_home
from lab.engine.protocol import AGENT_STOPPED, Announce, Channel, NodeState, Removed, Request, Traits, Trouble
from lab.errors import ClusterError, EngineAbsent, UsageError
from lab.node import processes
from lab.plan.cluster import ClusterInfo, Node, Shape
from lab.plan.limits import Machine
from lab.words import format_duration, plural

if TYPE_CHECKING:
    from lab.engine.doctor import Check, Wanted

_PYTHON_S = 60.0
"""A Python that does nothing else has answered long before."""


class LocalEngine(HeldEngine):
    """Clusters of process groups on this machine.

    Raises:
        EngineAbsent: this system is not Linux, or this Python has no torch.
    """

    name = ENGINE
    control = CONTROL
    noun = "local node"
    unlimited = MappingProxyType({"cpus": "--cpus", "processes": "--max-processes"})
    traits = Traits(
        cannot={
            "limits": "the local engine cannot do: its nodes are processes of this machine",
            "memory": "would eat the memory of this machine itself",
            "links": "the local engine cannot do: all its nodes have the one loopback of this machine",
            "cable": "the local engine cannot do: its nodes share the network of this machine",
        }
    )

    def __init__(self) -> None:
        if not sys.platform.startswith("linux"):
            raise EngineAbsent(f"the local engine runs on Linux, not on {sys.platform}", "install Docker")
        if importlib.util.find_spec("torch") is None:
            raise EngineAbsent(
                f"the local engine needs torch, which {sys.executable} does not have",
                f"pip install '{DISTRIBUTION}[local]', or start Docker",
            )
        self.home = local_home()

    # -- finding

    def find(self, cluster: str | None = None) -> list[ClusterInfo]:
        """The owner's clusters that exist, wholly or in part."""
        folders = [self.home / cluster] if cluster else sorted(self.home.glob("*"))
        return [info for folder in folders if (info := read_cluster(folder)) is not None]

    def nodeless(self) -> list[str]:
        """Names of the owner's clusters of which something is there, but no node."""
        return nodeless(self.home)

    def node_state(self, node: Node) -> NodeState:
        """What became of a node."""
        return node_state(node)

    def trouble(self, channel: Channel) -> Trouble | None:
        """What keeps a node from working although it is there."""
        stopped = isinstance(channel, LocalChannel) and processes.is_stopped(channel.peer_pid())
        return AGENT_STOPPED if stopped else None

    def memory_bytes(self, node: Node) -> int | None:
        """Memory that a node's processes hold, shared pages divided among those who share them."""
        try:
            pid = agent_pid(node)
        except OSError:
            return None
        return sum(processes.held_bytes([pid, *processes.descendants(pid)]).values())

    def machine(self) -> Machine:
        """This machine."""
        from lab.engine.local.room import room_here

        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return Machine(cores=len(os.sched_getaffinity(0)), memory_bytes=memory_bytes, room=room_here())

    # -- making

    def requests(self, cluster: str, shape: Shape, *, run: str | None) -> list[Request]:
        """What `create` asks of this machine; nothing is made."""
        from lab.engine.local.create import free_network, requests_for
        from lab.engine.local.room import COST
        from lab.plan.limits import FEW_RANKS, refuse_crowd

        if shape.nodes * shape.nproc_per_node > FEW_RANKS:
            refuse_crowd(shape.nodes, shape.nproc_per_node, self.machine().room, COST)
        network, packages = free_network(self.home, cluster, shape.nodes), self.packages(shape)
        return requests_for(self.home, cluster, shape, network=network, run=run, packages=packages)

    def create(self, cluster: str, shape: Shape, *, run: str | None, announce: Announce) -> ClusterInfo:
        """Make every node and wait until its agent can fork workers; after an error nothing is left."""
        if shape.gpus:
            from lab.engine.doctor import refuse_missing

            refuse_missing(shape.gpus)
        return super().create(cluster, shape, run=run, announce=announce)

    def make(
        self, cluster: str, shape: Shape, run: str | None, requests: list[Request], announce: Announce
    ) -> ClusterInfo:
        """Make the folder and the processes."""
        from lab.engine.local.create import create

        return create(self.home, cluster, requests, announce)

    # -- using

    def kill(self, node: Node) -> None:
        """Kill a node's agent and everything below it at once, as a power cut would."""
        pid = agent_pid(node)
        for victim in (pid, *processes.descendants(pid)):
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        await_end(node, ENDING_S)  # a busy machine takes its time; whoever looks then must not find it running

    def await_agents(self, folder: Path, nodes: Sequence[Node], announce: Announce) -> None:
        """Wait until the agents of nodes answer that were forked again."""
        from lab.engine.local.create import await_agents

        await_agents(nodes, lambda: any(map(has_ended, nodes)), folder, announce)

    def pause(self, node: Node) -> None:
        """Stop every process of a node, the agent first: it starts no other then."""
        try:
            pid = agent_pid(node)
        except OSError:
            raise ClusterError(f"{node.name} does not run") from None
        paused_file(node.handle).write_text(str(pid))
        running = processes.stand_still(lambda: [pid, *processes.descendants(pid)], ENDING_S)
        if running:
            raise ClusterError(f"{plural(len(running), 'process', 'processes')} of {node.name} would not stop")

    def resume(self, node: Node) -> None:
        """Let every process of a node go on, the agent last: it sees them run."""
        with suppress(OSError):
            pid = agent_pid(node)
            processes.go_on([pid, *processes.descendants(pid)])
        paused_file(node.handle).unlink(missing_ok=True)

    def paused(self, node: Node) -> bool:
        """Whether a node's agent was stopped by a signal."""
        try:
            return processes.is_stopped(agent_pid(node))
        except OSError:
            return False

    def execute(self, cluster: ClusterInfo, node: Node, argv: Sequence[str], *, tty: bool) -> int:
        """Run a command with the node's environment; returns its exit code."""
        from lab.engine.local.create import programs_first
        from lab.engine.local.state import packages_of

        folder = Path(node.handle).with_suffix("")
        folder.mkdir(exist_ok=True)
        packages = packages_of(node)
        environment = {
            **os.environ,
            **(programs_first(packages) if packages else {}),
            **node_variables(cluster, node),
            MARK: mark(self.home, cluster.name),
        }
        try:
            return subprocess.run(list(argv), env=environment, cwd=folder, check=False).returncode
        except FileNotFoundError:
            raise ClusterError(f"there is no command {argv[0]!r} on {node.name}") from None

    def ask_python(self, cluster: ClusterInfo, program: str) -> str:
        """What a program prints that the Python of the nodes runs."""
        from lab.engine.local.state import packages_of, running_python
        from lab.engine.packages import package_folders

        python = running_python(cluster.nodes[0]) or Path(sys.executable)
        packages = packages_of(cluster.nodes[0]) or self.packages(cluster.shape)
        command = [str(python), "-c", program, *([package_folders(packages)] if packages else [])]
        try:
            done = subprocess.run(command, cwd=self.home, capture_output=True, timeout=_PYTHON_S, check=False)
        except subprocess.TimeoutExpired:
            raise ClusterError(f"{python} did not answer within {format_duration(_PYTHON_S)}") from None
        return done.stdout.decode("utf-8", "replace")

    def read_files(self, node: Node, path: str) -> IO[bytes]:
        """A file or folder of this machine as a tar, which comes while it is read."""
        from lab.engine.archive import pack_stream

        try:
            return pack_stream(Path(path), Path(path).name)
        except UsageError as error:
            raise ClusterError(f"{error.message} on {node.name}") from error

    def write_files(self, node: Node, folder: str, archive: IO[bytes]) -> None:
        """Unpack a tar into a folder of this machine."""
        from lab.engine.archive import name_of, unpack

        try:
            unpack(archive, Path(folder) / name_of(archive))
        except UsageError as error:
            raise ClusterError(f"{error.message} on {node.name}") from error

    # -- removing

    def remove(self, cluster: str | None, *, settle: bool = False) -> Removed:
        """Remove the owner's cluster of this name, or all of them: every marked process, then the folder."""
        from lab.engine.local.state import remove

        return remove(self.home, cluster)

    def examine(self, wanted: Wanted) -> list[Check]:
        """What `lab doctor` has to say about this engine."""
        from lab.engine.local.doctor import examine

        return examine(self.home, wanted)
