"""The protocol of an engine: the core that every engine has, and optional capabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from lab.errors import ClusterUnfit
from lab.frozen import Frozen
from lab.plan.cluster import ClusterInfo, Node, Shape
from lab.plan.limits import Machine

if TYPE_CHECKING:
    from lab.engine.doctor import Check, Wanted

_BY_A_SIGNAL = 128
"""A larger exit code means a signal."""
_LAST_SIGNAL = 64
Announce = Callable[[str], None]
"""Receives a line of progress, such as `node1: importing torch`."""


class Request(NamedTuple):
    """One object that an engine asks for when it creates a cluster. It is the same for the same shape and names."""

    what: str
    """A kind and a name, such as `container lab-c-node0`."""
    body: Mapping[str, Any]
    """Its details as the receiver expects them: Docker's API, or this machine."""


class Channel(Protocol):
    """A two-way stream of bytes to one node's agent, over the engine, never over the cluster's network."""

    node: Node

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when `receive` has data."""

    def send(self, data: bytes) -> None:
        """Send all of it.

        Raises:
            OSError: the other end is closed, or did not read in time.
        """

    def receive(self) -> bytes | None:
        """Return received data: None if there is none yet, empty if the other end is closed."""

    def close(self) -> None:
        """Close the stream; the agent keeps running."""


class Trouble(NamedTuple):
    """Why an existing node does not work."""

    how: str
    """The end of a sentence that begins with the node's name."""
    silent: bool
    """Whether its agent cannot answer either."""


AGENT_STOPPED = Trouble("was stopped: its agent received SIGSTOP", silent=True)


class NodeState(NamedTuple):
    """The engine's knowledge of a node after its channel closed."""

    running: bool
    exit_code: int | None = None
    out_of_memory: bool = False
    """Whether the kernel killed the node itself because memory ran out."""
    gone: bool = False
    """Whether the engine no longer knows the node."""
    restarted: bool = False
    """Whether it ended and was started again."""
    message: str = ""
    """The engine's own description, such as `was lost: its host b is down`, if it explains more."""

    def sentence(self) -> str:
        """Describe how the node ended, as the end of a sentence that begins with its name."""
        if self.message:
            return self.message
        if self.gone:
            return "was removed"
        if self.running and self.restarted:
            return "was restarted"
        if self.running:
            return "runs, but its agent does not answer"
        if self.out_of_memory:
            return "was killed by the kernel: out of memory"
        if self.exit_code is not None and 0 < self.exit_code - _BY_A_SIGNAL <= _LAST_SIGNAL:
            from lab.node.processes import signal_name

            return f"was killed ({signal_name(self.exit_code - _BY_A_SIGNAL)})"
        return f"ended with exit code {self.exit_code}"


class Removed(Frozen):
    """What `remove` removed."""

    clusters: tuple[str, ...] = ()
    nodes: int = 0
    networks: int = 0
    volumes: int = 0
    files: int = 0

    def __add__(self, other: Removed) -> Removed:
        both = {name: getattr(self, name) + getattr(other, name) for name in vars(self)}
        return Removed(**{**both, "clusters": tuple(dict.fromkeys(both["clusters"]))})

    def __bool__(self) -> bool:
        return bool(self.nodes or self.networks or self.volumes or self.files)


Need = Literal["", "limits", "memory", "links", "cable"]
"""What a fault needs of an engine: other limits for a running node, memory of its own for a node, links that the engine
can shape, interfaces that it can take down."""


class Traits(NamedTuple):
    """Properties of an engine, so that callers need not know its name."""

    isolates: bool = False
    """Whether untrusted scripts are kept away from this machine, and from the next run."""
    containers: bool = False
    """Whether a node's handle is the id of its container."""
    divides_cores: bool = False
    """Whether all clusters are on one machine, whose cores `cpus` divides among nodes."""
    cannot: Mapping[Need, str] = {}
    """Faults that nodes do not support, each with the reason as the end of a sentence that begins with the fault."""


class Engine(Protocol):
    """Create, find, and remove clusters."""

    name: str
    traits: Traits

    def find(self, cluster: str | None = None) -> list[ClusterInfo]:
        """Return the owner's existing clusters, complete or not, by their labels: all, or the one of this name."""

    def nodeless(self) -> list[str]:
        """Return the names of the owner's clusters that have remains but no node: half created, or half removed."""

    def requests(self, cluster: str, shape: Shape, *, run: str | None) -> list[Request]:
        """Return what `create` requests, as plain data; create nothing.

        Raises:
            ClusterError: this engine cannot create such a cluster.
        """

    def create(self, cluster: str, shape: Shape, *, run: str | None, announce: Announce) -> ClusterInfo:
        """Create every node, and wait until its agent can fork workers; after an error nothing is left.

        Args:
            cluster: its name.
            shape: how many nodes and of what kind.
            run: the run that will remove it; None for a permanent cluster.
            announce: called with each line of progress.

        Raises:
            LabError: a node could not be created; the message names it.
        """

    def connect(self, cluster: ClusterInfo, nodes: Sequence[Node]) -> list[Channel]:
        """Open a channel to the agent of each of these nodes.

        Raises:
            NodeLost: a node cannot be reached.
        """

    def remove(self, cluster: str | None, *, settle: bool = False) -> Removed:
        """Remove the owner's cluster of this name, or all of them, by their labels.

        Args:
            settle: check again for a moment, because a process that was creating or removing objects died.
        """

    def trouble(self, channel: Channel) -> Trouble | None:
        """Return why an existing node does not work; called about once a second during a run.

        Raises:
            EngineUnavailable: the engine itself does not answer.
        """

    def node_state(self, node: Node) -> NodeState:
        """Return how a node ended.

        Raises:
            EngineUnavailable: the engine itself does not answer.
        """

    def machine(self) -> Machine:
        """Return the machine that nodes run on.

        Raises:
            EngineUnavailable: the engine does not answer.
        """


T = TypeVar("T")


class Throttle(NamedTuple):
    """Current limits of a node, as the engine has set them in the kernel."""

    cpus: float
    """Cores; those of the machine if there is no limit."""
    memory_bytes: int
    """Memory; that of the machine if there is no limit."""


@runtime_checkable
class PowerControl(Protocol):
    """Stop single nodes as a power cut would, and start them again."""

    def kill(self, node: Node) -> None:
        """Kill a node at once, as a power cut would."""

    def stop(self, nodes: Sequence[Node]) -> None:
        """Kill running nodes as `kill` does, and report them as stopped until they are started.

        Raises:
            LabError: a node could not be stopped; the message names it.
        """

    def start(self, cluster: ClusterInfo, nodes: Sequence[Node], *, announce: Announce) -> None:
        """Start nodes that do not run, as they were created, and wait until their agents can fork workers.

        Files of the run that ended with them are removed; files that are kept for all runs remain.

        Raises:
            LabError: a node did not start; the message names it.
        """


@runtime_checkable
class PauseControl(Protocol):
    """Pause the processes of single nodes."""

    def pause(self, node: Node) -> None:
        """Pause every process of a node, if it is not paused.

        Raises:
            LabError: the node does not run.
        """

    def resume(self, node: Node) -> None:
        """Resume every process of a node, if it is paused."""

    def paused(self, node: Node) -> bool:
        """Return whether a node is paused."""


@runtime_checkable
class LimitControl(Protocol):
    """Change the limits of running nodes."""

    def limit(self, node: Node, cpus: float | None, memory_bytes: int | None) -> None:
        """Set new limits of a node; None keeps a limit.

        Raises:
            LabError: the engine or its kernel does not support this.
        """

    def throttle(self, node: Node) -> Throttle:
        """Return the current limits of a node."""


@runtime_checkable
class Console(Protocol):
    """Run commands in nodes."""

    def execute(self, cluster: ClusterInfo, node: Node, argv: Sequence[str], *, tty: bool) -> int:
        """Run a command in a node with this process's standard streams.

        Returns:
            Its exit code.
        """


@runtime_checkable
class FileAccess(Protocol):
    """Read and write files of nodes."""

    def read_files(self, node: Node, path: str) -> Iterator[bytes]:
        """Return the pieces of a tar of a file or folder of a node, by its absolute path.

        Its entries begin with its name.

        Raises:
            ClusterError: the path does not exist, or cannot be read.
        """

    def write_files(self, node: Node, path: str, archive: Iterator[bytes]) -> None:
        """Create a file or folder of a node from such a tar, in an existing folder.

        Raises:
            ClusterError: the folder does not exist, or cannot be written.
        """


@runtime_checkable
class PythonRunner(Protocol):
    """Run programs with the Python of the workers."""

    def ask_python(self, cluster: ClusterInfo, program: str) -> str:
        """Return the output of a program, which receives the workers' extra package folders as arguments.

        Raises:
            ClusterError: the program does not end.
        """


@runtime_checkable
class MemoryMeter(Protocol):
    """Measure the memory of nodes."""

    def memory_bytes(self, node: Node) -> int | None:
        """Return the memory that a node uses; None if the engine does not report it."""


@runtime_checkable
class Examiner(Protocol):
    """Check whether runs can work."""

    def examine(self, wanted: Wanted) -> list[Check]:
        """Return the checks of `lab doctor` for this engine."""


@runtime_checkable
class ImageStore(Protocol):
    """Create nodes from images, and pull missing images."""

    def has_image(self, image: str) -> bool:
        """Return whether nodes can be created from an image without pulling it.

        Raises:
            LabError: the engine does not answer, or the name is invalid.
        """


_DOES: dict[type, str] = {
    PowerControl: "stop and start single nodes",
    PauseControl: "pause nodes",
    LimitControl: "change the limits of running nodes",
    Console: "run commands in nodes",
    FileAccess: "read and write files of nodes",
}


def require_capability(engine: Engine, capability: type[T]) -> T:
    """Return the engine, typed as one that has a capability.

    Raises:
        ClusterUnfit: it does not have it.
    """
    if not isinstance(engine, capability):
        raise ClusterUnfit(f"the {engine.name} engine cannot {_DOES[capability]}", "use another --engine")
    return engine


def refuse_for_one_host(shape: Shape, engine: str) -> None:
    """Refuse a shape that needs several hosts or a scheduler, for an engine that has one host.

    Raises:
        ClusterUnfit: the shape names hosts, or options for a scheduler.
    """
    if shape.hosts:
        why = f"the {engine} engine has one host, so nodes cannot be spread over {', '.join(shape.hosts)}"
        raise ClusterUnfit(why, "leave --hosts out, or use --engine slurm")
    if shape.allocation:
        name, value = next(iter(shape.allocation.items()))
        hint = "leave --allocation out, or use --engine slurm"
        raise ClusterUnfit(f"the {engine} engine has no scheduler for {name}={value}", hint)
