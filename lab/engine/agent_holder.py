"""Nodes whose agents a holder process on this machine starts, each with a Unix socket: local and Slurm nodes."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lab.engine.interrupts import defer_interrupts, may_outlive
from lab.engine.ownership import ClusterExists, current_owner, is_own
from lab.engine.packages import package_store
from lab.engine.protocol import Announce, Channel, Engine, NodeState, PauseControl, PowerControl, Request
from lab.engine.ready import HELLO, Stream, closing_channels, wait_ready
from lab.errors import ClusterError, EngineUnavailable, NodeLost
from lab.node import processes
from lab.node.files import remove_tree
from lab.node.messages.agent import ended_file
from lab.plan.cluster import ClusterInfo, Node, Shape
from lab.polling import poll_until
from lab.words import format_count, join_words

DESCRIPTION = "cluster.json"
"""The file in the folder of a cluster that describes it."""
_PARTS = {"shared", "site", "data"}
"""Folders that exist in a cluster's folder before its description."""
_ACCEPT_DEADLINE_S = 5
"""A stopped agent accepts no connection; once the kernel's queue is full, another connect would wait forever."""
_ANSWER_TIMEOUT_S = 10.0
_END_REPORT_S = 1.0
"""The holder process may report the end of an agent this much later."""
_WRITTEN_S = 3.0
"""A `lab up` whose nodes are removed may still write into its cluster's folder for this long."""
_DYING_S = 0.3
"""The listening socket of a killed agent may close this much later than its connections."""
ENDING_S = 15.0
"""A killed agent ends, also in Slurm, and a stopped process stops, within less than this."""
_KILLED = 128 + signal.SIGKILL
"""The exit code of an agent whose end was not reported."""


class LocalChannel(Stream):
    """A Unix socket to an agent.

    Raises:
        BlockingIOError: the agent is stopped and does not accept connections.
        OSError: nothing listens there.
    """

    def __init__(self, node: Node) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _ACCEPT_DEADLINE_S, 0))
        try:
            connection.connect(node.handle)
        except OSError:
            connection.close()
            raise
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 0))
        super().__init__(node, connection)

    def peer_pid(self) -> int:
        """Return the pid of the agent."""
        credentials = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[0])


def stopped_file(handle: str) -> Path:
    """Return the file that exists while a node is stopped on purpose."""
    return Path(f"{handle}.stopped")


def paused_file(handle: str) -> Path:
    """Return the file that exists while a node is paused; it holds the agent's pid if that is known here."""
    return Path(f"{handle}.paused")


def is_listening(path: str) -> bool:
    """Return whether an agent listens at a path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:  # it is stopped, and its queue is full
            return True
        except OSError:
            return False
        return True


def agent_pid(node: Node) -> int:
    """Return the pid of a node's agent; for a paused node, without using one of its few connections.

    Raises:
        OSError: the agent does not run.
    """
    with suppress(OSError, ValueError):
        pid = int(paused_file(node.handle).read_text())
        if processes.is_stopped(pid):
            return pid
    with closing(LocalChannel(node)) as channel:
        return channel.peer_pid()


def has_ended(node: Node) -> bool:
    """Return whether the end of an agent was reported."""
    return Path(ended_file(node.handle)).exists()


def await_end(node: Node) -> None:
    """Wait, up to a limit, until an agent no longer listens and its end was reported."""
    poll_until(lambda: not is_listening(node.handle) and has_ended(node), ENDING_S)


def holder_died(life: Path) -> bool:
    """Return whether the holder process was killed, which locks a file as long as it lives."""
    try:
        with life.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # it is locked, or gone
        return False
    return True


def read_description(folder: Path) -> dict[str, Any]:
    """Return the description of a cluster from its folder; empty if it is half created, or no cluster."""
    try:
        data: dict[str, Any] = json.loads((folder / DESCRIPTION).read_text())
        Shape.from_json(data["shape"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return data


def is_cluster(folder: Path) -> bool:
    """Return whether an engine created a folder, completely or in part, and it holds nothing else."""
    with suppress(OSError):
        return (folder / DESCRIPTION).exists() or set(os.listdir(folder)) <= _PARTS
    return False


def unlink_sockets(folders: Iterable[Path]) -> None:
    """Remove the sockets of nodes first: then a client learns that a node was removed, not killed."""
    for handle in (handle for folder in folders for handle in folder.glob("*.sock")):
        handle.unlink(missing_ok=True)


def remove_folders(folders: Iterable[Path]) -> None:
    """Remove folders. Each description goes last, so that an interrupted removal can be continued.

    Raises:
        ClusterError: a folder holds something that this user may not remove; the others are removed.
    """

    def is_gone(folder: Path) -> bool:
        for path in set(folder.glob("*")) - {folder / DESCRIPTION}:
            remove_tree(path)
        return remove_tree(folder)

    # A running `lab up` writes there until it notices that its nodes are gone.
    if left := [str(folder) for folder in folders if not poll_until(partial(is_gone, folder), _WRITTEN_S, 0.05)]:
        raise ClusterError(f"cannot remove {join_words(left)}: other users own files in it", "remove it as root")


def start_holder(
    argv: Sequence[str], environment: Mapping[str, str], log: Path, stdin_text: str = ""
) -> Callable[[], bool]:
    """Start the process that starts and reaps the agents of a cluster.

    Args:
        argv: its command.
        environment: its variables.
        log: the file for its output.
        stdin_text: its standard input.

    Returns:
        A function that returns whether the process has ended.
    """
    with log.open("wb") as written:
        streams: Any = {"stdin": subprocess.PIPE, "stdout": written, "stderr": written}
        holder = subprocess.Popen(argv, **streams, env=environment, cwd="/", start_new_session=True)
    may_outlive(holder)
    assert holder.stdin is not None
    with suppress(BrokenPipeError), holder.stdin:  # it may have ended, and its log says why
        holder.stdin.write(stdin_text.encode())
    return lambda: holder.poll() is not None


def _ask_holder(control: Path, node: Node) -> None:
    """Ask the holder process to start the agent of a node."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(_ANSWER_TIMEOUT_S)
            asking.connect(str(control))
            asking.sendall(f"{node.name}\n".encode())
            answer = asking.recv(1024).decode("utf-8", "replace").strip()
    except OSError as error:
        holder = f"the parent process of the nodes of cluster {control.parent.name}"
        why = f"cannot start {node.name}: {holder} does not answer ({error.strerror or error})"
        raise ClusterError(why, "make the cluster again: `lab down`, then `lab up`") from error
    if answer:
        raise ClusterError(f"cannot start {node.name}: {answer}", "see `lab status`")


class HolderEngine(Engine, PowerControl, PauseControl):
    """Common parts of engines whose agents a holder process starts, and whose clusters each have a folder."""

    home: Path
    """The folder with a subfolder for each cluster."""
    control: str
    """Name of the socket, in the folder of a cluster, at which the holder accepts requests for an agent."""
    life: str
    """Name of the file there that the holder locks as long as it lives."""
    log: str
    """Name of the file there with the holder's output."""
    noun = "node"
    unlimited: Mapping[str, str]
    """Resources that the engine does not limit: fields of shapes, and their options."""
    ready_timeout_s: float

    # -- implemented by each engine, besides the methods of protocols

    def read_cluster(self, folder: Path) -> ClusterInfo | None:
        """Return the cluster in a folder; None if there is none, or it is half created and nothing runs yet."""
        raise NotImplementedError

    def read_state(self, node: Node) -> str:
        """Return the state of a node; see `Node`."""
        raise NotImplementedError

    def start_agents(
        self, cluster: str, shape: Shape, run: str | None, requests: Sequence[Request], announce: Announce
    ) -> Callable[[], bool]:
        """Start the holder of a new cluster; return a function that tells whether the holder has ended."""
        raise NotImplementedError

    def explain_lost(self, node: Node) -> ClusterError:
        """Return the error for a node that ended while it was starting."""
        return ClusterError(f"the agent of {node.name} exited during the start", "see `lab doctor`")

    def read_last_line(self, path: Path) -> str:
        """Return the last line that a cluster's processes wrote to a file."""
        try:
            return self.last_line(path.read_text(errors="replace"))
        except FileNotFoundError:
            return "the cluster was removed meanwhile"

    def last_line(self, text: str) -> str:
        """Return the last line of what a cluster's processes wrote."""
        lines = text.strip().splitlines()
        return lines[-1] if lines else "they printed no error"

    # -- finding

    def folders(self, cluster: str | None) -> list[Path]:
        """Return the folder of the owner's cluster of this name, or all folders, complete or not."""
        if not is_own(self.home):
            return []
        return list(filter(is_cluster, [self.home / cluster] if cluster else sorted(self.home.glob("*"))))

    def find(self, cluster: str | None = None) -> list[ClusterInfo]:
        """Return the owner's existing clusters, complete or not."""
        return [info for folder in self.folders(cluster) if (info := self.read_cluster(folder)) is not None]

    def nodeless(self) -> list[str]:
        """Return the names of the owner's clusters that have remains but no node."""
        return [folder.name for folder in self.folders(None) if self.read_cluster(folder) is None]

    def make_info(
        self, folder: Path, description: Mapping[str, Any], locations: Iterable[tuple[str, str]], **details: Any
    ) -> ClusterInfo:
        """Return a cluster of this engine, with a node at each of these addresses and hosts."""
        nodes = []
        for rank, (address, host) in enumerate(locations):
            name = f"node{rank}"
            node = Node(name=name, node_rank=rank, handle=str(folder / f"{name}.sock"), address=address, host=host)
            nodes.append(replace(node, state=self.read_state(node)))
        shape = Shape.from_json(description["shape"])
        version, owner, address = description.get("version", ""), current_owner(), nodes[0].address
        known = {"run": description.get("run"), "version": version, **details}
        made = ClusterInfo(name=folder.name, engine=self.name, shape=shape, nodes=tuple(nodes), owner=owner, **known)
        return replace(made, limits=shape.limits, master_addr=address)

    def node_state(self, node: Node) -> NodeState:
        """Return how a node ended."""
        handle = Path(node.handle)
        if self.paused(node) or not poll_until(lambda: not is_listening(node.handle), _DYING_S):
            return NodeState(running=True)
        if not handle.exists():
            return NodeState(running=False, gone=True)

        def is_dead() -> bool:
            return has_ended(node) or holder_died(handle.parent / self.life)

        poll_until(is_dead, _END_REPORT_S)
        with suppress(OSError, ValueError):
            return NodeState(running=False, exit_code=int(Path(ended_file(node.handle)).read_text()))
        if holder_died(handle.parent / self.life):
            why = f"the parent process of the {self.noun}s of cluster {handle.parent.name} was killed"
            raise EngineUnavailable(why, "`lab down` removes the rest")
        return NodeState(running=False, exit_code=_KILLED)

    # -- making

    def packages(self, shape: Shape) -> str:
        """Return the virtual environment that the workers of a cluster use; empty if they need none."""
        return package_store(self).name_of(None, shape.requirements) if shape.requirements else ""

    def create(self, cluster: str, shape: Shape, *, run: str | None, announce: Announce) -> ClusterInfo:
        """Create every node, and wait until its agent can fork workers; after an error nothing is left."""
        requests = self.requests(cluster, shape, run=run)
        for field, option in self.unlimited.items():
            if getattr(shape, field):
                announce(f"warning: the {self.name} engine does not limit {option}")
        if shape.requirements:
            package_store(self).prepare(None, shape.requirements, announce=announce)
        try:
            ended = self.start_agents(cluster, shape, run, requests, announce)
            self._await_agents(cluster, self.find(cluster)[0].nodes, ended, announce)
            return self.find(cluster)[0]
        except ClusterExists:
            raise
        except BaseException:
            with defer_interrupts():
                self.remove(cluster)
            raise

    def _await_agents(self, cluster: str, nodes: Sequence[Node], ended: Callable[[], bool], announce: Announce) -> None:
        """Wait until the agent of each node answers, or the holder has ended.

        Raises:
            ClusterError: an agent did not start.
        """
        import tenacity

        retry = tenacity.Retrying(
            wait=tenacity.wait_fixed(0.005),
            stop=lambda state: ended() or bool(tenacity.stop_after_delay(self.ready_timeout_s)(state)),
            retry=tenacity.retry_if_exception_type(OSError),
            reraise=True,
        )
        try:
            with closing_channels(list[LocalChannel]()) as channels:
                for node in nodes:
                    channels.append(retry(LocalChannel, node))
                    channels[-1].send(HELLO)
                lost = wait_ready(channels, self.ready_timeout_s, announce)
        except OSError as error:
            words = self.read_last_line(self.home / cluster / self.log)
            raise ClusterError(f"the nodes did not start: {words}", "see `lab doctor`") from error
        if lost is not None:
            raise self.explain_lost(lost.node)

    # -- using

    def connect(self, cluster: ClusterInfo, nodes: Sequence[Node]) -> list[Channel]:
        """Open a channel to the agent of each of these nodes."""
        channels: list[Channel] = []
        for node in nodes:
            try:
                channels.append(LocalChannel(node))
            except OSError as error:
                for channel in channels:
                    channel.close()
                raise NodeLost(f"cannot connect to {node.name} of cluster {cluster.name}: {error.strerror}") from error
        return channels

    def stop(self, nodes: Sequence[Node]) -> None:
        """Kill running nodes, and report them as stopped until they are started."""
        for node in nodes:
            stopped_file(node.handle).touch()
            if is_listening(node.handle):
                with suppress(OSError):  # it has just ended
                    self.kill(node)

    def start(self, cluster: ClusterInfo, nodes: Sequence[Node], *, announce: Announce) -> None:
        """Restart the agents of nodes that do not run, and wait until they can fork workers."""
        if not nodes:
            return
        announce(f"starting {format_count(len(nodes), self.noun)} again")
        for node in nodes:
            await_end(node)
            stopped_file(node.handle).unlink(missing_ok=True)
            _ask_holder(self.home / cluster.name / self.control, node)
        self._await_agents(cluster.name, nodes, lambda: any(map(has_ended, nodes)), announce)


def node_variables(cluster: ClusterInfo, node: Node) -> dict[str, str]:
    """Return the variables of a command that runs on a node."""
    return {
        **cluster.shape.env,
        "LAB_SHARED": cluster.shared,
        **({"LAB_DATA": cluster.data} if cluster.shape.data else {}),
        "LAB_NODE": node.name,
        "LAB_NODE_ADDRESS": node.address,
    }
