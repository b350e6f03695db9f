"""Nodes whose agents a process on this machine holds, each with a Unix socket: local nodes, and those of Slurm."""

from __future__ import annotations

import fcntl
import signal
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from lab.engine.interrupts import uninterrupted
from lab.engine.ownership import Taken
from lab.engine.packages import package_store
from lab.engine.protocol import Announce, Channel, Removed, Request
from lab.engine.ready import HELLO, Stream, wait_ready
from lab.errors import ClusterError, NodeLost
from lab.node import processes
from lab.node.messages.agent import ended_file
from lab.plan.cluster import ClusterInfo, Node, Shape
from lab.waiting import wait_until
from lab.words import plural

_ACCEPT_DEADLINE_S = 5
"""An agent that is stopped accepts nobody; when so many wait as the kernel lets, a further one would wait for ever."""
_ANSWER_TIMEOUT_S = 10.0
_TELLING_S = 1.0
"""The process that holds the agents may say so much later how one ended."""
ENDING_S = 15.0
"""A killed agent is gone, also for Slurm, and a stopped process stands, long before."""
KILLED = 128 + signal.SIGKILL
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


def open_channels(cluster: str, nodes: Sequence[Node]) -> list[Channel]:
    """A channel to each of these nodes of a cluster.

    Raises:
        NodeLost: one cannot be reached; none is open then.
    """
    channels: list[Channel] = []
    for node in nodes:
        try:
            channels.append(LocalChannel(node))
        except OSError as error:
            for channel in channels:
                channel.close()
            raise NodeLost(f"{node.name} of cluster {cluster} cannot be reached: {error.strerror}") from error
    return channels


def stopped_file(handle: str) -> Path:
    """What is there as long as a node is stopped on purpose."""
    return Path(f"{handle}.stopped")


def paused_file(path: str) -> Path:
    """What is there while a node stands still on purpose, with the pid of its agent; `path` is where that listens."""
    return Path(f"{path}.paused")


def paused_pid(path: str) -> int:
    """Pid of an agent that stands still on purpose, 0 where it does not, without one of its few connections."""
    try:
        pid = int(paused_file(path).read_text())
    except (OSError, ValueError):
        return 0
    return pid if processes.is_stopped(pid) else 0


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
    """Pid of a node's agent.

    Raises:
        OSError: it does not run.
    """
    paused = paused_pid(node.handle)
    if paused:
        return paused
    channel = LocalChannel(node)
    try:
        return channel.peer_pid()
    finally:
        channel.close()


def exit_code(node: Node) -> int | None:
    """How an agent ended, as the process says that holds it; None where it does not."""

    def told() -> int | None:
        with suppress(OSError, ValueError):
            return int(Path(ended_file(node.handle)).read_text())
        return None

    return wait_until(told, _TELLING_S, enough=lambda code: code is not None)


def holder_died(life: Path) -> bool:
    """Whether the process was killed that holds a file locked as long as it lives."""
    try:
        with life.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # it is locked, or gone
        return False
    return True


def has_ended(node: Node) -> bool:
    """Whether it was said how an agent ended."""
    return Path(ended_file(node.handle)).exists()


def await_end(node: Node, deadline_s: float) -> None:
    """Wait until nobody listens there any more and it was said how it ended, but not for ever."""
    wait_until(lambda: not listens(node.handle) and has_ended(node), deadline_s)


def ask_holder(control: Path, node: Node) -> None:
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


def greet(
    nodes: Sequence[Node],
    ended: Callable[[], bool],
    timeout_s: float,
    last_words: Callable[[], str],
    announce: Announce,
) -> Node | None:
    """Wait until the agent of each node answers, or nobody is left who could start it.

    Args:
        nodes: those that start.
        ended: whether nobody is left.
        timeout_s: how long to wait.
        last_words: what was said last by those who start them.
        announce: called with what there is to tell.

    Returns:
        The first node that ended instead; None: all answered.

    Raises:
        ClusterError: one did not start.
    """
    import tenacity

    def over(state: tenacity.RetryCallState) -> bool:
        return ended() or state.seconds_since_start > timeout_s  # type: ignore[operator]

    retry = tenacity.Retrying(
        wait=tenacity.wait_fixed(0.005), stop=over, retry=tenacity.retry_if_exception_type(OSError), reraise=True
    )
    channels: list[Channel] = []
    try:
        for node in nodes:
            channels.append(retry(LocalChannel, node))
            channels[-1].send(HELLO)
        lost = wait_ready(channels, timeout_s, announce)
    except OSError as error:
        raise ClusterError(f"the nodes did not start: {last_words()}") from error
    finally:
        for channel in channels:
            channel.close()
    return lost.node if lost is not None else None


class HeldEngine:
    """What engines have in common whose agents a process on this machine holds."""

    name: str
    home: Path
    """The folder in which each cluster has one."""
    control: str
    """Name of the socket, in the folder of a cluster, where that process is asked for another agent."""
    noun = "node"
    unlimited: Mapping[str, str]
    """What it does not limit: fields of shapes, and the options for them."""

    def packages(self, shape: Shape) -> str:
        """The virtual environment that the workers of a cluster use; empty where they need none."""
        if not shape.requirements:
            return ""
        return package_store(self).name_of(None, shape.requirements)  # type: ignore[arg-type]

    def create(self, cluster: str, shape: Shape, *, run: str | None, announce: Announce) -> ClusterInfo:
        """Make every node and wait until its agent can fork workers; after an error nothing is left."""
        requests = self.requests(cluster, shape, run=run)
        for field, option in self.unlimited.items():
            if getattr(shape, field):
                announce(f"warning: the {self.name} engine does not limit {option}")
        if shape.requirements:
            package_store(self).prepare(None, shape.requirements, announce=announce)  # type: ignore[arg-type]
        try:
            return self.make(cluster, shape, run, requests, announce)
        except Taken:
            raise
        except BaseException:
            with uninterrupted():
                self.remove(cluster)
            raise

    def requests(self, cluster: str, shape: Shape, *, run: str | None) -> list[Request]:
        """What `create` asks for, as plain data; nothing is made."""
        raise NotImplementedError

    def make(
        self, cluster: str, shape: Shape, run: str | None, requests: list[Request], announce: Announce
    ) -> ClusterInfo:
        """Make what was asked for; after an error what was made is still there."""
        raise NotImplementedError

    def await_agents(self, folder: Path, nodes: Sequence[Node], announce: Announce) -> None:
        """Wait until the agents of nodes answer that were started again."""
        raise NotImplementedError

    def kill(self, node: Node) -> None:
        """Kill a node at once, as a power cut would."""
        raise NotImplementedError

    def remove(self, cluster: str | None, *, settle: bool = False) -> Removed:
        """Remove the owner's cluster of this name, or all of them."""
        raise NotImplementedError

    def connect(self, cluster: ClusterInfo, nodes: Sequence[Node]) -> list[Channel]:
        """Open a channel to the agent of each of these nodes."""
        return open_channels(cluster.name, nodes)

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
        folder = self.home / cluster.name
        announce(f"starting {plural(len(nodes), self.noun)} again")
        for node in nodes:
            await_end(node, ENDING_S)
            stopped_file(node.handle).unlink(missing_ok=True)
            ask_holder(folder / self.control, node)
        self.await_agents(folder, nodes, announce)


def node_variables(cluster: ClusterInfo, node: Node) -> dict[str, str]:
    """The variables of a command that is run on a node."""
    return {
        **cluster.shape.env,
        "LAB_SHARED": cluster.shared,
        **({"LAB_DATA": cluster.data} if cluster.shape.data else {}),
        "LAB_NODE": node.name,
        "LAB_NODE_ADDRESS": node.address,
    }


def last_line(log: Path) -> str:
    """The last line in a file of what the processes of a cluster wrote."""
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except FileNotFoundError:
        return "the cluster was removed meanwhile"
    return lines[-1] if lines else "no word from them"
