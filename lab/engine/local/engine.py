"""The local engine: no Docker, no root. A node is a group of processes with its own loopback address.

One process imports torch and forks an agent for every node. A cluster consists of a folder below /tmp and of processes
that carry its label in their environment; both can be found again without any other state.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lab import DISTRIBUTION, __version__
from lab.engine import agent_holder
from lab.engine.ownership import is_own, local_home, new_folder
from lab.engine.protocol import AGENT_STOPPED, Announce, Channel, Removed, Request, Traits, Trouble, refuse_for_one_host
from lab.errors import ClusterError, ClusterUnfit, EngineAbsent, UsageError
from lab.feature import find_hook
from lab.node import processes
from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo, Node, Shape
from lab.plan.limits import FEW_RANKS, Machine, refuse_excess_nodes
from lab.words import format_count, format_duration

if TYPE_CHECKING:
    from lab.engine.doctor import Check, Wanted

CLUSTER_VARIABLE = "LAB_LOCAL_CLUSTER"
"""Environment variable of every process of a cluster."""
_NODES_OF_A_NETWORK = 250
CONTROL, LIFE, LOG = "zygote.sock", "zygote.lock", "zygote.log"
"""Files of a cluster: the socket at which its process accepts requests for an agent, its lock, and its output."""
_FIRST, _NETWORKS = 256, 254 * 256
"""The first network is 127.1.0, the last 127.254.255."""


def free_network(home: Path, cluster: str, nodes: int) -> str:
    """Return the middle octets of the first of consecutive networks 127.A.B.n that no cluster of this owner uses.

    Raises:
        ClusterUnfit: too few are free.
    """
    import hashlib  # a slow import, and most commands create no cluster

    used: set[int] = set()
    for data in filter(None, map(agent_holder.read_description, home.glob("*"))):
        first = network_number(data["network"])
        used.update(range(first, first + _count_networks(count_nodes(data))))
    wanted = _count_networks(nodes)
    begin = int.from_bytes(hashlib.sha256(f"{home}/{cluster}".encode()).digest()[:2], "big")
    for number in ((begin + i) % _NETWORKS for i in range(_NETWORKS)):
        if number + wanted <= _NETWORKS and used.isdisjoint(range(_FIRST + number, _FIRST + number + wanted)):
            return network_name(_FIRST + number)
    needed = f"{format_count(nodes, 'node')} need {format_count(wanted, 'consecutive network')} of loopback addresses"
    why = f"{needed}; {len(used):,} of {_NETWORKS:,} are in use"
    raise ClusterUnfit(why, "ask for fewer nodes, or remove clusters with `lab down --all`")


def node_address(network: str, node_rank: int) -> str:
    """Return a node's loopback address in the network with these middle octets, or the next one if it is full."""
    next_networks, index = divmod(node_rank, _NODES_OF_A_NETWORK)
    return f"127.{network_name(network_number(network) + next_networks)}.{index + 1}"


def network_number(network: str) -> int:
    """Return the number of a network, from its two middle octets."""
    upper, lower = map(int, network.split("."))
    return upper * 256 + lower


def network_name(number: int) -> str:
    """Return the two middle octets of a network."""
    return f"{number // 256}.{number % 256}"


def count_nodes(data: Mapping[str, Any]) -> int:
    """Return the number of nodes in a cluster's description; 0 if it is missing."""
    return int(json.loads(data.get("shape", "{}")).get("nodes", 0))


def _count_networks(nodes: int) -> int:
    """Return the number of consecutive networks for this many nodes."""
    return -(-nodes // _NODES_OF_A_NETWORK)


def requests_for(
    home: Path, cluster: str, shape: Shape, *, network: str, run: str | None, packages: str = ""
) -> list[Request]:
    """Return the folder with its description, and the process that forks agents.

    Args:
        home: the folder of all local clusters.
        cluster: its name.
        shape: its shape.
        network: the two middle octets of its addresses.
        run: the run that will remove it, if any.
        packages: the virtual environment of the workers; empty: none.

    Raises:
        ClusterUnfit: the local engine does not support this shape.
    """
    _refuse_impossible(shape)
    folder = home / cluster
    site = str(folder / "site")
    start = f"import sys; sys.path.append({site!r}); from labnode.node.local_nodes import main; main()"
    agents = [
        {
            "node": node,
            "root": str(folder / node),
            "container": False,
            "import_root": site,
            "socket": str(folder / f"{node}.sock"),
            "packages": packages,
            "memory_bytes": shape.memory_bytes,
            "disk_bytes": shape.disk_bytes,
            "shared": str(folder / "shared"),
            "store": str(folder / "contents"),
        }
        for node in (f"node{node_rank}" for node_rank in range(shape.nodes))
    ]
    environment = {"GLOO_SOCKET_IFNAME": "lo", **shape.env, CLUSTER_VARIABLE: str(folder)}
    argv = [sys.executable, "-c", start, str(folder / LIFE), str(folder / CONTROL)]
    description = {"shape": shape.to_json(), "network": network, "run": run, "version": __version__}
    description |= {"python": sys.executable, "packages": packages}
    return [
        Request(what=f"folder {folder}", body={agent_holder.DESCRIPTION: description}),
        Request(
            what=f"process of {shape.nodes} agents", body={"argv": argv, "agents": agents, "environment": environment}
        ),
    ]


def _refuse_impossible(shape: Shape) -> None:
    refuse_for_one_host(shape, "local")
    for volume in shape.volumes:
        if str(volume.source) != volume.target:
            raise ClusterUnfit(
                f"the local engine cannot mount {volume.source} at {volume.target}: its nodes are on this machine",
                f"use {volume.source} as the target too, or the docker engine",
            )
    if shape.strict:
        why = "--strict needs the docker engine: local workers run as your own user"
        raise ClusterUnfit(why, "use --engine docker")
    if shape.image is not None:
        hint = "leave the image out, or use --engine docker"
        raise ClusterUnfit(f"the local engine cannot use the image {shape.image}: it has no images", hint)


_PYTHON_S = 60.0
"""A Python that does nothing else answers within less than this."""
_REMOVED_S = 10.0


class LocalEngine(agent_holder.HolderEngine):
    """Clusters of process groups on this machine.

    Raises:
        EngineAbsent: this system is not Linux, or this Python has no torch.
    """

    name = "local"
    control, life, log = CONTROL, LIFE, LOG
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
        addresses = [(node_address(data["network"], rank), "") for rank in range(count_nodes(data))]
        folders = {name: str(folder / name) for name in ("shared", "data")}
        return self.make_info(folder, data, addresses, gpus="machine", **folders)

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
        network, packages = free_network(self.home, cluster, shape.nodes), self.packages(shape)
        return requests_for(self.home, cluster, shape, network=network, run=run, packages=packages)

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
        own = {name: value for name, value in os.environ.items() if name != "LAB_STARTED"}  # of a recorded command
        environment, log = {**own, **process["environment"]}, folder / LOG
        return agent_holder.start_holder(process["argv"], environment, log, json.dumps(process["agents"]))

    # -- using

    def kill(self, node: Node) -> None:
        """Kill a node's agent and everything below it at once, as a power cut would."""
        processes.kill_processes(_pids(node))
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
            CLUSTER_VARIABLE: f"{self.home}/{cluster.name}",
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
        is_own_home = is_own(self.home) or not self.home.exists()  # root could kill the clusters of others
        while is_own_home and (victims := _find_labelled(f"{self.home}/{cluster or ''}", exact=cluster is not None)):
            killed.update(victims)
            processes.kill_processes(victims)
            if time.monotonic() > end:
                pids = ", ".join(map(str, sorted(victims)))
                raise ClusterError(f"processes {pids} did not end within {format_duration(_REMOVED_S)}")
            time.sleep(0.005)
        nodes = sum(count_nodes(agent_holder.read_description(folder)) for folder in folders)
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
    wanted = f"{CLUSTER_VARIABLE}={label}".encode()
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
