"""The local engine: no Docker, no root. A node is a group of processes with its own loopback address.

One process imports torch and forks an agent for every node. A cluster consists of a folder below /tmp and of processes
that carry its label in their environment; both can be found again without any other state.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from lab import DISTRIBUTION
from lab.engine import agent_holder
from lab.engine.local import create
from lab.engine.ownership import local_home, new_folder
from lab.engine.protocol import AGENT_STOPPED, Announce, Channel, Removed, Request, Traits, Trouble
from lab.errors import ClusterError, EngineAbsent, UsageError
from lab.feature import find_hook
from lab.node import processes
from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo, Node, Shape
from lab.plan.limits import FEW_RANKS, Machine, refuse_excess_nodes
from lab.words import format_count, format_duration

if TYPE_CHECKING:
    from lab.engine.doctor import Check, Wanted

_PYTHON_S = 60.0
"""A Python that does nothing else answers within less than this."""
_REMOVED_S = 10.0


class LocalEngine(agent_holder.HolderEngine):
    """Clusters of process groups on this machine.

    Raises:
        EngineAbsent: this system is not Linux, or this Python has no torch.
    """

    name = "local"
    control, life, log = create.CONTROL, create.LIFE, create.LOG
    noun = "local node"
    ready_timeout_s = 120.0
    unlimited = MappingProxyType({"cpus": "--cpus", "processes": "--max-processes"})
    traits = Traits(
        cannot={
            "limits": "is not possible on the local engine: its nodes are processes of this machine",
            "memory": "would use up the memory of this machine",
            "links": "is not possible on the local engine: its nodes share the loopback interface of this machine",
            "cable": "is not possible on the local engine: its nodes share the network of this machine",
        }
    )

    def __init__(self) -> None:
        if not sys.platform.startswith("linux"):
            raise EngineAbsent(f"the local engine runs on Linux, not on {sys.platform}", "install Docker")
        if importlib.util.find_spec("torch") is None:
            hint = f"pip install '{DISTRIBUTION}[local]', or start Docker"
            raise EngineAbsent(f"the local engine needs torch, which {sys.executable} does not have", hint)
        self.home = local_home()

    # -- finding

    def read_cluster(self, folder: Path) -> ClusterInfo | None:
        """Return the cluster in a folder; None if there is none."""
        data = agent_holder.read_description(folder)
        if "network" not in data:
            return None
        return self.make_info(
            folder,
            data,
            [(create.node_address(data["network"], rank), "") for rank in range(create.count_nodes(data))],
            gpus="machine",
            shared=str(folder / "shared"),
            data=str(folder / "data"),
        )

    def read_state(self, node: Node) -> str:
        """Return the state of a node."""
        try:
            return "halted" if processes.is_stopped(agent_holder.agent_pid(node)) else RUNNING
        except BlockingIOError:
            return "halted"
        except OSError:
            return STOPPED if agent_holder.stopped_file(node.handle).exists() else "dead"

    def trouble(self, channel: Channel) -> Trouble | None:
        """Return why an existing node does not work."""
        stopped = isinstance(channel, agent_holder.LocalChannel) and processes.is_stopped(channel.peer_pid())
        return AGENT_STOPPED if stopped else None

    def memory_bytes(self, node: Node) -> int | None:
        """Return the memory of a node's processes, with shared pages divided among the processes that share them."""
        with suppress(OSError):
            return sum(processes.held_bytes(_pids(node)).values())
        return None

    def machine(self) -> Machine:
        """Return this machine."""
        from lab.engine.local.machine import read_capacity

        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return Machine(cores=len(os.sched_getaffinity(0)), memory_bytes=memory_bytes, capacity=read_capacity())

    # -- creating

    def requests(self, cluster: str, shape: Shape, *, run: str | None) -> list[Request]:
        """Return what `create` requests of this machine; create nothing."""
        from lab.engine.local.machine import COST

        if shape.nodes * shape.nproc_per_node > FEW_RANKS:
            refuse_excess_nodes(shape.nodes, shape.nproc_per_node, self.machine().capacity, COST)
        network, packages = create.free_network(self.home, cluster, shape.nodes), self.packages(shape)
        return create.requests_for(self.home, cluster, shape, network=network, run=run, packages=packages)

    def create(self, cluster: str, shape: Shape, *, run: str | None, announce: Announce) -> ClusterInfo:
        """Create every node, and wait until its agent can fork workers; after an error nothing is left."""
        if shape.gpus:
            from lab.engine.doctor import refuse_missing
            from lab.plan.plan import VARIABLE

            refuse_missing(shape.gpus, 1 if VARIABLE in shape.env else shape.nodes)  # with it, nodes may share
        return super().create(cluster, shape, run=run, announce=announce)

    def start_agents(
        self, cluster: str, shape: Shape, run: str | None, requests: Sequence[Request], announce: Announce
    ) -> Callable[[], bool]:
        """Create the folder, and start the process that forks agents."""
        from lab.engine.payload import write_node_files

        files, process = (request.body for request in requests)
        folder = new_folder(self.home, cluster, "LAB_LOCAL_HOME")
        for name in ("shared", "data"):
            (folder / name).mkdir()
        write_node_files(folder / "site")
        (folder / agent_holder.DESCRIPTION).write_text(json.dumps(files[agent_holder.DESCRIPTION]))
        for name, source in shape.data.items():
            (folder / "data" / name).symlink_to(source)
        announce(f"starting {format_count(shape.nodes, 'local node')}, importing torch once")
        environment, log = {**os.environ, **process["environment"]}, folder / create.LOG
        return agent_holder.start_holder(process["argv"], environment, log, json.dumps(process["agents"]))

    # -- using

    def kill(self, node: Node) -> None:
        """Kill a node's agent and everything below it at once, as a power cut would."""
        for victim in _pids(node):
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        agent_holder.await_end(node)  # on a busy machine this takes time, and later callers must not find it running

    def pause(self, node: Node) -> None:
        """Stop every process of a node, the agent first, so that it starts no other."""
        try:
            pid = agent_holder.agent_pid(node)
        except OSError:
            raise ClusterError(f"{node.name} is not running", f"`lab start {node.name}`") from None
        agent_holder.paused_file(node.handle).write_text(str(pid))
        running = processes.stop_processes(lambda: [pid, *processes.list_descendants(pid)], agent_holder.ENDING_S)
        if running:
            raise ClusterError(f"{format_count(len(running), 'process', 'processes')} of {node.name} did not stop")

    def resume(self, node: Node) -> None:
        """Continue every process of a node, the agent last, so that it finds them running."""
        with suppress(OSError):
            processes.continue_processes(_pids(node))
        agent_holder.paused_file(node.handle).unlink(missing_ok=True)

    def paused(self, node: Node) -> bool:
        """Return whether a signal has stopped a node's agent."""
        with suppress(OSError):
            return processes.is_stopped(agent_holder.agent_pid(node))
        return False

    def execute(self, cluster: ClusterInfo, node: Node, argv: Sequence[str], *, tty: bool) -> int:
        """Run a command with the node's environment; return its exit code."""
        folder = Path(node.handle).with_suffix("")
        folder.mkdir(exist_ok=True)
        packages = agent_holder.read_description(self.home / cluster.name).get("packages", "")
        first = {"VIRTUAL_ENV": packages, "PATH": f"{packages}/bin:{os.environ.get('PATH', os.defpath)}"}
        environment = {
            **os.environ,
            **(first if packages else {}),
            **agent_holder.node_variables(cluster, node),
            create.CLUSTER_VARIABLE: f"{self.home}/{cluster.name}",
        }
        try:
            return subprocess.run(list(argv), env=environment, cwd=folder, check=False).returncode
        except FileNotFoundError:
            raise ClusterError(f"there is no command {argv[0]!r} on {node.name}") from None

    def ask_python(self, cluster: ClusterInfo, program: str) -> str:
        """Return the output of a program that the Python of the nodes runs."""
        from lab.engine.packages import package_folders

        description = agent_holder.read_description(self.home / cluster.name)
        python, packages = description.get("python", sys.executable), description.get("packages", "")
        command = [python, "-c", program, *([package_folders(packages)] if packages else [])]
        try:
            done = subprocess.run(command, cwd=self.home, capture_output=True, timeout=_PYTHON_S, check=False)
        except subprocess.TimeoutExpired:
            raise ClusterError(f"{python} did not answer within {format_duration(_PYTHON_S)}") from None
        return done.stdout.decode("utf-8", "replace")

    def read_files(self, node: Node, path: str) -> Iterator[bytes]:
        """Return a file or folder of this machine as a tar, read on demand."""
        pack_tar: Callable[[Path, str], Iterator[bytes]] = find_hook("pack_tar")
        try:
            return pack_tar(Path(path), Path(path).name)
        except UsageError as error:
            raise ClusterError(f"{error.message} on {node.name}") from error

    def write_files(self, node: Node, path: str, archive: Iterator[bytes]) -> None:
        """Create a file or folder of this machine from a tar."""
        try:
            find_hook("unpack_tar")(archive, Path(path))
        except UsageError as error:
            raise ClusterError(f"{error.message} on {node.name}") from error

    # -- removing

    def remove(self, cluster: str | None, *, settle: bool = False) -> Removed:
        """Remove the owner's cluster of this name, or all of them: every labelled process, then the folder.

        Raises:
            ClusterError: a process does not end, or a folder cannot be removed.
        """
        folders = self.folders(cluster)
        agent_holder.unlink_sockets(folders)
        killed, end = set[int](), time.monotonic() + _REMOVED_S
        while victims := _find_labelled(f"{self.home}/{cluster or ''}", exact=cluster is not None):
            killed.update(victims)
            for pid in victims:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > end:
                pids = ", ".join(map(str, sorted(victims)))
                raise ClusterError(f"processes {pids} did not end within {format_duration(_REMOVED_S)}")
            time.sleep(0.005)
        nodes = sum(create.count_nodes(agent_holder.read_description(folder)) for folder in folders)
        agent_holder.remove_folders(folders)
        names = tuple(folder.name for folder in folders)
        return Removed(clusters=names, nodes=nodes or len(killed), files=len(folders))

    def examine(self, wanted: Wanted) -> list[Check]:
        """Return the checks of `lab doctor` for this engine."""
        from lab.engine.local.machine import examine_local_engine

        return examine_local_engine(self.home, wanted)


def _pids(node: Node) -> list[int]:
    """Return the pids of a node's agent and its descendants.

    Raises:
        OSError: the agent does not run.
    """
    pid = agent_holder.agent_pid(node)
    return [pid, *processes.list_descendants(pid)]


def _find_labelled(label: str, *, exact: bool) -> list[int]:
    """Return the processes whose environment has the label, without zombies, and all their descendants."""
    wanted = f"{create.CLUSTER_VARIABLE}={label}".encode()
    pids = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except OSError:
            continue
        if wanted in variables if exact else any(variable.startswith(wanted) for variable in variables):
            pids.append(int(entry))
    return [] if not pids else [*pids, *set(processes.list_descendants(*pids)).difference(pids, [os.getpid()])]
