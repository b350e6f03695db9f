"""The Slurm engine: a cluster is an allocation, and a node a job step on one of its machines.

A process on the login node, where `lab up` was called, holds the agents by the standard streams of their steps. A
cluster is found by its folder there, and by the labels in the comment of its job.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING

from lab.engine.held import ENDING_S, HeldEngine, await_end, listens, node_variables, paused_file
from lab.engine.packages import package_folders
from lab.engine.protocol import Announce, Channel, NodeState, Removed, Request, Traits, Trouble
from lab.errors import ClusterError, ClusterUnfit
from lab.features.slurm.command import ask, refuse_absence
from lab.features.slurm.state import CONTROL, ENGINE, fate_of, find, home_folder, job_of, node_state, nodeless
from lab.plan.cluster import ClusterInfo, Node, Shape
from lab.plan.limits import Machine

if TYPE_CHECKING:
    from lab.engine.doctor import Check, Wanted

_SUSPENDED_S = 10.0
"""How often Slurm is asked, while a run goes on, whether it has suspended the job: its controller serves many."""
_SUSPENDED = Trouble("was suspended by Slurm", silent=True)
_PAUSED = Trouble("was paused", silent=True)


class SlurmEngine(HeldEngine):
    """Clusters that are allocations.

    Raises:
        EngineAbsent: Slurm's commands are not on this machine.
    """

    name = ENGINE
    control = CONTROL
    unlimited = MappingProxyType({"processes": "--max-processes"})
    traits = Traits(
        cannot={
            "limits": "the slurm engine cannot do: what a job may use is settled when it begins",
            "memory": "would eat the memory of a machine that others may share",
            "links": "the slurm engine cannot do: its nodes are no owners of the networks of their machines",
            "cable": "the slurm engine cannot do: its nodes are no owners of the networks of their machines",
        }
    )

    def __init__(self) -> None:
        refuse_absence()
        self.home = home_folder()
        self._asked: dict[str, float] = {}
        """When it was last asked whether a job is suspended, by its number."""
        self._suspended: set[str] = set()

    # -- finding

    def find(self, cluster: str | None = None) -> list[ClusterInfo]:
        """The owner's clusters that exist, wholly or in part."""
        return find(self.home, cluster)

    def nodeless(self) -> list[str]:
        """Names of the owner's clusters of which something is there, but no node."""
        return nodeless(self.home)

    def node_state(self, node: Node) -> NodeState:
        """What became of a node, in Slurm's own words where it ended the job."""
        return node_state(node)

    def trouble(self, channel: Channel) -> Trouble | None:
        """What keeps a node from working although it is there."""
        if paused_file(channel.node.handle).exists():
            return _PAUSED
        job, now = job_of(channel.node), time.monotonic()
        if now - self._asked.setdefault(job, now) > _SUSPENDED_S:
            self._asked[job] = now
            self._suspended.discard(job)
            if fate_of(job).suspended:
                self._suspended.add(job)
        return _SUSPENDED if job in self._suspended else None

    def memory_bytes(self, node: Node) -> int | None:
        """Memory that a node's processes hold; None where it cannot be asked."""
        from lab.features.slurm.create import beside

        try:
            return int(beside(node, "memory"))
        except (ClusterError, ValueError):
            return None

    def machine(self) -> Machine:
        """The least of the machines that Slurm gives where nobody says which."""
        from lab.features.slurm.command import least_machine

        return least_machine(ask("sinfo", "--noheader", "--format=%P|%c|%m"))

    # -- making

    def requests(self, cluster: str, shape: Shape, *, run: str | None) -> list[Request]:
        """What `create` asks of Slurm; nothing is made."""
        from lab.engine import ownership
        from lab.features.slurm.create import requests_for

        pythons, packages = self._pythons(shape), self.packages(shape)
        known = (self.home, cluster, shape)
        return requests_for(*known, owner=ownership.owner(), run=run, pythons=pythons, packages=packages)

    def _pythons(self, shape: Shape) -> list[str]:
        """What nodes are run by: the first of these that has torch on their machine."""
        if shape.requirements:  # their environment is made over this Python
            return [sys.executable]
        if shape.image is not None:
            return ["python3", "python"]
        chosen = os.environ.get("LAB_SLURM_PYTHON")
        return [chosen] if chosen else [sys.executable, "python3", "python"]

    def create(self, cluster: str, shape: Shape, *, run: str | None, announce: Announce) -> ClusterInfo:
        """Make every node and wait until its agent can fork workers; after an error nothing is left."""
        if shape.image is not None:
            _refuse_without_pyxis(shape.image)
        return super().create(cluster, shape, run=run, announce=announce)

    def make(
        self, cluster: str, shape: Shape, run: str | None, requests: list[Request], announce: Announce
    ) -> ClusterInfo:
        """Ask for the allocation, and have the agents started on its machines."""
        from lab.features.slurm.create import create

        return create(self.home, cluster, shape, run, requests, announce)

    # -- using

    def await_agents(self, folder: Path, nodes: Sequence[Node], announce: Announce) -> None:
        """Wait until the agents of nodes answer that were started again."""
        from lab.features.slurm.create import await_agents

        await_agents(folder, nodes, announce)

    def kill(self, node: Node) -> None:
        """Kill everything below a node's first process at once, and wait until Slurm has seen that."""
        self._act(node, "kill")
        await_end(node, ENDING_S)
        paused_file(node.handle).unlink(missing_ok=True)

    def _act(self, node: Node, action: str) -> None:
        from lab.features.slurm.create import beside

        beside(node, action)

    def pause(self, node: Node) -> None:
        """Have every process of a node stand still."""
        if not listens(node.handle):
            raise ClusterError(f"{node.name} does not run")
        paused_file(node.handle).touch()
        try:
            self._act(node, "pause")
        except ClusterError:
            self.resume(node)
            raise

    def resume(self, node: Node) -> None:
        """Have them go on, where they stand still."""
        if self.paused(node):
            with suppress(ClusterError):  # it does not run any more
                self._act(node, "resume")
            paused_file(node.handle).unlink(missing_ok=True)

    def paused(self, node: Node) -> bool:
        """Whether they stand still."""
        return paused_file(node.handle).exists()

    def execute(self, cluster: ClusterInfo, node: Node, argv: Sequence[str], *, tty: bool) -> int:
        """Run a command on the node's machine with this process's standard streams; returns its exit code."""
        from lab.features.slurm.create import execute

        return execute(node, argv, node_variables(cluster, node), tty=tty)

    def ask_python(self, cluster: ClusterInfo, program: str) -> str:
        """What a program prints that the Python of the first node runs."""
        from lab.features.slurm.create import ask_python

        packages = self.packages(cluster.shape)
        return ask_python(cluster.nodes[0], program, *([package_folders(packages)] if packages else []))

    def read_files(self, node: Node, path: str) -> IO[bytes]:
        """A file or folder of a node's machine as a tar."""
        from lab.features.slurm.create import read_files

        return read_files(node, path)

    def write_files(self, node: Node, folder: str, archive: IO[bytes]) -> None:
        """Unpack a tar into a folder of a node's machine."""
        from lab.features.slurm.create import write_files

        write_files(node, folder, archive)

    # -- removing

    def remove(self, cluster: str | None, *, settle: bool = False) -> Removed:
        """Remove the owner's cluster of this name, or all of them: the job, what holds its agents, the folders."""
        from lab.features.slurm.state import remove

        return remove(self.home, cluster, settle=settle)

    def examine(self, wanted: Wanted) -> list[Check]:
        """What `lab doctor` has to say about this engine."""
        from lab.features.slurm.doctor import examine

        return examine(self.home, wanted, self._pythons(Shape(nodes=1)))


def _refuse_without_pyxis(image: str) -> None:
    """Refuse an image where srun has no option for one.

    Raises:
        ClusterUnfit: it has none.
    """
    helped = subprocess.run(["srun", "--help"], capture_output=True, text=True, timeout=20, check=False)
    if "--container-image" not in helped.stdout:
        raise ClusterUnfit(
            f"nodes cannot be made of {image}: this Slurm has no pyxis, which gives srun --container-image",
            "leave the image out: nodes then have the Python of their machines",
        )
