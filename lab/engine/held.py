"""Nodes whose agents a process on this machine holds, each with a Unix socket: local nodes, and those of Slurm."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lab.engine.interrupts import may_outlive, uninterrupted
from lab.engine.ownership import Taken, owner
from lab.engine.packages import package_store
from lab.engine.protocol import Announce, Channel, Engine, NodeState, PauseControl, PowerControl, Request
from lab.engine.ready import HELLO, Stream, closing_channels, wait_ready
from lab.errors import ClusterError, EngineUnavailable, NodeLost
from lab.node import processes
from lab.node.files import remove_tree
from lab.node.messages.agent import ended_file
from lab.plan.cluster import ClusterInfo, Node, Shape
from lab.waiting import wait_until
from lab.words import listing, plural

DESCRIPTION = "cluster.json"
"""The file in the folder of a cluster that says what it is."""
_PARTS = {"shared", "site", "data"}
"""Folders that are in that of a cluster before its description."""
_ACCEPT_DEADLINE_S = 5
"""An agent that is stopped accepts nobody; when so many wait as the kernel lets, a further one would wait for ever."""
_ANSWER_TIMEOUT_S = 10.0
_TELLING_S = 1.0
"""The process that holds the agents may say so much later how one ended."""
_WRITTEN_S = 3.0
"""So long a `lab up` whose nodes are removed may go on to write into the folder of its cluster."""
_DYING_S = 0.3
"""What a killed agent listens at may close so much later than its connections."""
ENDING_S = 15.0
"""A killed agent is gone, also for Slurm, and a stopped process stands, long before."""
_KILLED = 128 + signal.SIGKILL
"""The exit code of an agent of which nobody says how it ended."""


class LocalChannel(Stream):
    """A Unix socket to an agent.

    Raises:
        BlockingIOError: whoever listens there does not take what waits: it is stopped.
        OSError: nobody listens there.
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
        """Pid of the agent."""
        credentials = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[0])


def stopped_file(handle: str) -> Path:
    """What is there as long as a node is stopped on purpose."""
    return Path(f"{handle}.stopped")


def paused_file(handle: str) -> Path:
    """What is there while a node stands still on purpose, with the pid of its agent where that is known here."""
    return Path(f"{handle}.paused")


def listens(path: str) -> bool:
    """Whether an agent listens at a path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:  # it is stopped, and does not take what waits
            return True
        except OSError:
            return False
        return True


def agent_pid(node: Node) -> int:
    """Pid of a node's agent; of one that stands still on purpose, without one of its few connections.

    Raises:
        OSError: it does not run.
    """
    with suppress(OSError, ValueError):
        pid = int(paused_file(node.handle).read_text())
        if processes.is_stopped(pid):
            return pid
    channel = LocalChannel(node)
    try:
        return channel.peer_pid()
    finally:
        channel.close()


def has_ended(node: Node) -> bool:
    """Whether it was said how an agent ended."""
    return Path(ended_file(node.handle)).exists()


def await_end(node: Node) -> None:
    """Wait until nobody listens there any more and it was said how it ended, but not for ever."""
    wait_until(lambda: not listens(node.handle) and has_ended(node), ENDING_S)


def holder_died(life: Path) -> bool:
    """Whether the process was killed that holds a file locked as long as it lives."""
    try:
        with life.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # it is locked, or gone
        return False
    return True


def read_description(folder: Path) -> dict[str, Any]:
    """What the folder of a cluster says of it; nothing where it is half made, or no cluster."""
    try:
        data: dict[str, Any] = json.loads((folder / DESCRIPTION).read_text())
        Shape.from_json(data["shape"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return data


def is_cluster(folder: Path) -> bool:
    """Whether an engine made a folder, whole or half, and nobody put anything else there."""
    try:
        return (folder / DESCRIPTION).exists() or set(os.listdir(folder)) <= _PARTS
    except OSError:
        return False


def unlink_sockets(folders: Iterable[Path]) -> None:
    """Remove the sockets of nodes first: whoever uses one learns that it was removed, not killed."""
    for handle in (handle for folder in folders for handle in folder.glob("*.sock")):
        handle.unlink(missing_ok=True)


def remove_folders(folders: Iterable[Path]) -> None:
    """Remove folders, of each last what says of which cluster the rest is, should this be killed.

    Raises:
        ClusterError: one holds something that this user may not remove; the others are gone.
    """

    def is_gone(folder: Path) -> bool:
        for path in set(folder.glob("*")) - {folder / DESCRIPTION}:
            remove_tree(path)
        return remove_tree(folder)

    # A `lab up` that is at work still writes there, until it finds its nodes gone.
    if left := [str(folder) for folder in folders if not wait_until(partial(is_gone, folder), _WRITTEN_S, 0.05)]:
        raise ClusterError(f"{listing(left)} cannot be removed: you may not remove what is there", "have it removed")


def start_holder(argv: Sequence[str], environment: Mapping[str, str], log: Path, told: str = "") -> Callable[[], bool]:
    """Start the process that holds the agents of a cluster; returns what tells whether it has ended.

    Args:
        argv: its command.
        environment: its variables.
        log: the file for what it writes.
        told: what it reads from its standard input.
    """
    with log.open("wb") as written:
        holder = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=written,
            stderr=written,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
    may_outlive(holder)
    assert holder.stdin is not None
    with suppress(BrokenPipeError), holder.stdin:  # it may have ended, and has written why
        holder.stdin.write(told.encode())
    return lambda: holder.poll() is not None


def _ask_holder(control: Path, node: Node) -> None:
    """Have the process that holds the agents start that of a node."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(_ANSWER_TIMEOUT_S)
            asking.connect(str(control))
            asking.sendall(f"{node.name}\n".encode())
            answer = asking.recv(1024).decode("utf-8", "replace").strip()
    except OSError as error:
        raise ClusterError(
            f"{node.name} cannot be started: the process that holds the nodes of cluster {control.parent.name} "
            f"does not answer ({error.strerror or error})",
            "`lab down` removes the rest, and `lab up` makes it anew",
        ) from error
    if answer:
        raise ClusterError(f"{node.name} cannot be started: {answer}", "see `lab status`")


class HeldEngine(Engine, PowerControl, PauseControl):
    """What engines have in common whose agents a process on this machine holds, and whose clusters have a folder."""

    home: Path
    """The folder in which each cluster has one."""
    control: str
    """Name of the socket, in the folder of a cluster, where that process is asked for another agent."""
    life: str
    """Name of the file there that is locked while that process lives."""
    log: str
    """Name of the file there with what that process wrote."""
    noun = "node"
    unlimited: Mapping[str, str]
    """What it does not limit: fields of shapes, and the options for them."""
    ready_timeout_s: float

    # -- what each of them has besides the methods of protocols

    def read_cluster(self, folder: Path) -> ClusterInfo | None:
        """The cluster in a folder; None where there is none, or it is half made: nothing runs there yet."""
        raise NotImplementedError

    def read_state(self, node: Node) -> str:
        """The state of a node; see `Node`."""
        raise NotImplementedError

    def begin(
        self, cluster: str, shape: Shape, run: str | None, requests: Sequence[Request], announce: Announce
    ) -> Callable[[], bool]:
        """Start what holds the agents of a new cluster; returns what tells whether nobody can start one any more."""
        raise NotImplementedError

    def explain_lost(self, node: Node) -> ClusterError:
        """Why a node ended while it was starting."""
        return ClusterError(f"{node.name} ended while it was starting")

    def last_words(self, path: Path) -> str:
        """What the processes of a cluster wrote last to a file."""
        try:
            lines = path.read_text(errors="replace").strip().splitlines()
        except FileNotFoundError:
            return "the cluster was removed meanwhile"
        return lines[-1] if lines else "no word from them"

    # -- finding

    def folders(self, cluster: str | None) -> list[Path]:
        """The folder of the owner's cluster of this name, or of all, whole or half made."""
        return list(filter(is_cluster, [self.home / cluster] if cluster else sorted(self.home.glob("*"))))

    def find(self, cluster: str | None = None) -> list[ClusterInfo]:
        """The owner's clusters that exist, wholly or in part."""
        return [info for folder in self.folders(cluster) if (info := self.read_cluster(folder)) is not None]

    def nodeless(self) -> list[str]:
        """Names of the owner's clusters of which something is there, but no node."""
        return [folder.name for folder in self.folders(None) if self.read_cluster(folder) is None]

    def make_info(
        self, folder: Path, said: Mapping[str, Any], places: Iterable[tuple[str, str]], **details: Any
    ) -> ClusterInfo:
        """A cluster of this engine, of nodes with these addresses on these hosts; of its description, what all have."""
        nodes = []
        for rank, (address, host) in enumerate(places):
            name = f"node{rank}"
            node = Node(name=name, node_rank=rank, handle=str(folder / f"{name}.sock"), address=address, host=host)
            nodes.append(replace(node, state=self.read_state(node)))
        shape = Shape.from_json(said["shape"])
        return ClusterInfo(
            name=folder.name,
            engine=self.name,
            shape=shape,
            nodes=tuple(nodes),
            owner=owner(),
            run=said.get("run"),
            version=said.get("version", ""),
            limits=shape.limits,
            master_addr=nodes[0].address,
            **details,
        )

    def node_state(self, node: Node) -> NodeState:
        """What became of a node."""
        handle = Path(node.handle)
        if self.paused(node) or not wait_until(lambda: not listens(node.handle), _DYING_S):
            return NodeState(running=True)
        if not handle.exists():
            return NodeState(running=False, gone=True)

        def is_dead() -> bool:
            return has_ended(node) or holder_died(handle.parent / self.life)

        wait_until(is_dead, _TELLING_S)
        with suppress(OSError, ValueError):
            return NodeState(running=False, exit_code=int(Path(ended_file(node.handle)).read_text()))
        if holder_died(handle.parent / self.life):
            raise EngineUnavailable(
                f"the process that holds the {self.noun}s of cluster {handle.parent.name} was killed",
                "`lab down` removes the rest",
            )
        return NodeState(running=False, exit_code=_KILLED)

    # -- making

    def packages(self, shape: Shape) -> str:
        """The virtual environment that the workers of a cluster use; empty where they need none."""
        return package_store(self).name_of(None, shape.requirements) if shape.requirements else ""

    def create(self, cluster: str, shape: Shape, *, run: str | None, announce: Announce) -> ClusterInfo:
        """Make every node and wait until its agent can fork workers; after an error nothing is left."""
        requests = self.requests(cluster, shape, run=run)
        for field, option in self.unlimited.items():
            if getattr(shape, field):
                announce(f"warning: the {self.name} engine does not limit {option}")
        if shape.requirements:
            package_store(self).prepare(None, shape.requirements, announce=announce)
        try:
            ended = self.begin(cluster, shape, run, requests, announce)
            self._await_agents(cluster, self.find(cluster)[0].nodes, ended, announce)
            return self.find(cluster)[0]
        except Taken:
            raise
        except BaseException:
            with uninterrupted():
                self.remove(cluster)
            raise

    def _await_agents(self, cluster: str, nodes: Sequence[Node], ended: Callable[[], bool], announce: Announce) -> None:
        """Wait until the agent of each node answers, or nobody is left who could start it.

        Raises:
            ClusterError: one did not start.
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
            words = self.last_words(self.home / cluster / self.log)
            raise ClusterError(f"the nodes did not start: {words}") from error
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
                raise NodeLost(f"{node.name} of cluster {cluster.name} cannot be reached: {error.strerror}") from error
        return channels

    def stop(self, nodes: Sequence[Node]) -> None:
        """Kill nodes, where they run, and have them found as stopped until they are started."""
        for node in nodes:
            stopped_file(node.handle).touch()
            if listens(node.handle):
                with suppress(OSError):  # it has ended meanwhile
                    self.kill(node)

    def start(self, cluster: ClusterInfo, nodes: Sequence[Node], *, announce: Announce) -> None:
        """Have the agents of nodes that do not run started again, and wait until they can fork workers."""
        if not nodes:
            return
        announce(f"starting {plural(len(nodes), self.noun)} again")
        for node in nodes:
            await_end(node)
            stopped_file(node.handle).unlink(missing_ok=True)
            _ask_holder(self.home / cluster.name / self.control, node)
        self._await_agents(cluster.name, nodes, lambda: any(map(has_ended, nodes)), announce)


def node_variables(cluster: ClusterInfo, node: Node) -> dict[str, str]:
    """The variables of a command that is run on a node."""
    return {
        **cluster.shape.env,
        "LAB_SHARED": cluster.shared,
        **({"LAB_DATA": cluster.data} if cluster.shape.data else {}),
        "LAB_NODE": node.name,
        "LAB_NODE_ADDRESS": node.address,
    }
