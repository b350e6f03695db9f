"""What an engine is: the core that every engine has, and the capabilities that one may have besides."""

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
"""An exit code above it tells of a signal."""
_LAST_SIGNAL = 64
Announce = Callable[[str], None]
"""Takes a line of progress, such as `node1: importing torch`."""


class Request(NamedTuple):
    """One thing that an engine asks for when it makes a cluster; plain data, the same for the same shape and names."""

    what: str
    """A kind and a name, such as `container lab-c-node0`."""
    body: Mapping[str, Any]
    """Its details, as the one who is asked expects them: Docker's API, or this machine."""


class Channel(Protocol):
    """A two-way stream of bytes to one node's agent, over the engine, never over the cluster's network."""

    node: Node

    def fileno(self) -> int:
        """A descriptor that becomes readable when `receive` has something."""

    def send(self, data: bytes) -> None:
        """Send all of it.

        Raises:
            OSError: the other end is gone, or did not take it in time.
        """

    def receive(self) -> bytes | None:
        """What has arrived; None where nothing has yet; empty when the other end is gone."""

    def close(self) -> None:
        """Close the stream; the agent goes on running."""


class Trouble(NamedTuple):
    """What keeps a node from working although it is there."""

    how: str
    """As the end of a sentence that begins with its name."""
    silent: bool
    """Whether its agent cannot answer either."""


AGENT_STOPPED = Trouble("was stopped: its agent had a SIGSTOP", silent=True)


class NodeState(NamedTuple):
    """What the engine knows about a node after its channel closed."""

    running: bool
    exit_code: int | None = None
    out_of_memory: bool = False
    """Whether the kernel killed the node itself because memory ran out."""
    gone: bool = False
    """Whether the engine no longer knows the node."""
    restarted: bool = False
    """Whether it had ended before."""
    said: str = ""
    """What the engine itself says became of it, such as `was lost with its host b`, where that tells more."""

    def sentence(self) -> str:
        """How the node ended, as the end of a sentence that begins with its name."""
        if self.said:
            return self.said
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
    """What `remove` took away."""

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
"""What a fault needs of an engine: other limits for a node that runs, a node's memory for itself, links that can be
shaped, interfaces that can be taken down."""


class Traits(NamedTuple):
    """What others want to know of an engine, whatever it is called."""

    isolates: bool = False
    """Whether scripts that nobody trusts are kept from this machine, and from the next run."""
    containers: bool = False
    """Whether the handle of a node is the id of its container."""
    divides_cores: bool = False
    """Whether all clusters are on one machine, whose cores `cpus` divides among nodes."""
    cannot: Mapping[Need, str] = {}
    """What nodes cannot have done to them: why not, as the end of a sentence that begins with it."""


class Engine(Protocol):
    """Makes, finds and removes clusters."""

    name: str
    traits: Traits

    def find(self, cluster: str | None = None) -> list[ClusterInfo]:
        """The owner's clusters that exist, wholly or in part, by their labels; all, or the one of that name."""

    def nodeless(self) -> list[str]:
        """Names of the owner's clusters of which something is there, but no node: half made, or half removed."""

    def requests(self, cluster: str, shape: Shape, *, run: str | None) -> list[Request]:
        """What `create` asks for, as plain data; nothing is made.

        Raises:
            ClusterError: this engine cannot make such a cluster.
        """

    def create(self, cluster: str, shape: Shape, *, run: str | None, announce: Announce) -> ClusterInfo:
        """Make every node and wait until its agent can fork workers; after an error nothing is left.

        Args:
            cluster: its name.
            shape: how many nodes and of what kind.
            run: the run that will remove it; None for a cluster that stays.
            announce: called with what is being waited for.

        Raises:
            LabError: what went wrong and on which node.
        """

    def connect(self, cluster: ClusterInfo, nodes: Sequence[Node]) -> list[Channel]:
        """Open a channel to the agent of each of these nodes.

        Raises:
            NodeLost: one cannot be reached.
        """

    def remove(self, cluster: str | None, *, settle: bool = False) -> Removed:
        """Remove the owner's cluster of this name, or all of them, by their labels.

        Args:
            settle: look again for a moment, because a process that was making or removing things died.
        """

    def trouble(self, channel: Channel) -> Trouble | None:
        """What keeps a node from working although it is there, asked about once a second while a run goes on.

        Raises:
            EngineUnavailable: the engine itself does not answer.
        """

    def node_state(self, node: Node) -> NodeState:
        """What became of a node.

        Raises:
            EngineUnavailable: the engine itself does not answer.
        """

    def machine(self) -> Machine:
        """The machine that nodes run on.

        Raises:
            EngineUnavailable: the engine does not answer.
        """


T = TypeVar("T")


class Throttle(NamedTuple):
    """What a node may use, as the engine has told the kernel."""

    cpus: float
    """Cores; as many as the machine has where nothing was said."""
    memory_bytes: int
    """What the machine has where nothing was said."""


@runtime_checkable
class PowerControl(Protocol):
    """Stops single nodes as a power cut would, and starts them again."""

    def kill(self, node: Node) -> None:
        """Kill a node at once, as a power cut would."""

    def stop(self, nodes: Sequence[Node]) -> None:
        """Kill nodes as `kill` does, where they run, and have them found as stopped until they are started.

        Raises:
            LabError: which node could not be stopped, and why.
        """

    def start(self, cluster: ClusterInfo, nodes: Sequence[Node], *, announce: Announce) -> None:
        """Start nodes that do not run, as they were made, and wait until their agents can fork workers.

        What a run had left in them that ended with them is gone; what is kept for all runs is there.

        Raises:
            LabError: what went wrong and on which node.
        """


@runtime_checkable
class PauseControl(Protocol):
    """Has the processes of single nodes stand still."""

    def pause(self, node: Node) -> None:
        """Have every process of a node stand still; does nothing where they do.

        Raises:
            LabError: it does not run.
        """

    def resume(self, node: Node) -> None:
        """Have them go on, where they stand still."""

    def paused(self, node: Node) -> bool:
        """Whether they stand still."""


@runtime_checkable
class LimitControl(Protocol):
    """Changes what nodes may use while they run."""

    def limit(self, node: Node, cpus: float | None, memory_bytes: int | None) -> None:
        """Let a node use no more than this from now on; what is None stays as it is.

        Raises:
            LabError: this engine, or its kernel, cannot do that.
        """

    def throttle(self, node: Node) -> Throttle:
        """What a node may use now."""


@runtime_checkable
class Console(Protocol):
    """Runs commands in nodes."""

    def execute(self, cluster: ClusterInfo, node: Node, argv: Sequence[str], *, tty: bool) -> int:
        """Run a command in a node with this process's standard streams.

        Returns:
            Its exit code.
        """


@runtime_checkable
class FileAccess(Protocol):
    """Reads and writes files of nodes."""

    def read_files(self, node: Node, path: str) -> Iterator[bytes]:
        """The pieces of a tar of a file or folder of a node, by its absolute path; its entries begin with its name.

        Raises:
            ClusterError: there is none, or it cannot be read.
        """

    def write_files(self, node: Node, path: str, archive: Iterator[bytes]) -> None:
        """Make a file or folder of a node, in a folder that is there, of such a tar.

        Raises:
            ClusterError: it is not, or cannot be written.
        """


@runtime_checkable
class PythonRunner(Protocol):
    """Runs programs with the Python that workers have."""

    def ask_python(self, cluster: ClusterInfo, program: str) -> str:
        """What the text of a program prints, which is given the folders of packages that workers have besides.

        Raises:
            ClusterError: it does not end.
        """


@runtime_checkable
class MemoryMeter(Protocol):
    """Measures the memory of nodes."""

    def memory_bytes(self, node: Node) -> int | None:
        """Memory that a node uses; None where the engine does not say."""


@runtime_checkable
class Examiner(Protocol):
    """Says what is in the way of a run."""

    def examine(self, wanted: Wanted) -> list[Check]:
        """What `lab doctor` has to say about this engine."""


@runtime_checkable
class ImageStore(Protocol):
    """Makes nodes of images, and pulls those that it does not have."""

    def has_image(self, image: str) -> bool:
        """Whether nodes can be made of an image without pulling it.

        Raises:
            LabError: the engine does not answer, or no image can be called that.
        """


_DOES: dict[type, str] = {
    PowerControl: "stop and start single nodes",
    PauseControl: "pause nodes",
    LimitControl: "change what nodes may use while they run",
    Console: "run commands in nodes",
    FileAccess: "read and write files of nodes",
}


def capable(engine: Engine, capability: type[T]) -> T:
    """The engine, as one that has a capability.

    Raises:
        ClusterUnfit: it does not have it.
    """
    if not isinstance(engine, capability):
        raise ClusterUnfit(f"the {engine.name} engine cannot {_DOES[capability]}", "use another --engine")
    return engine


def refuse_for_one_host(shape: Shape, engine: str) -> None:
    """Refuse what an engine of one host, which has no scheduler, cannot do.

    Raises:
        ClusterUnfit: the shape names hosts, or tells a scheduler something.
    """
    if shape.hosts:
        raise ClusterUnfit(
            f"the {engine} engine has one host, so nodes cannot be spread over {', '.join(shape.hosts)}",
            "leave --hosts out, or use --engine slurm",
        )
    if shape.allocation:
        name, value = next(iter(shape.allocation.items()))
        raise ClusterUnfit(
            f"the {engine} engine has no scheduler that could be told {name}={value}",
            "leave --allocation out, or use --engine slurm",
        )
