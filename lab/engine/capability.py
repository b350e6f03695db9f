"""What engines can do besides the core: each of these protocols is of one capability that an engine may have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol, TypeVar, runtime_checkable

from lab.engine.protocol import Announce, Engine
from lab.errors import ClusterUnfit
from lab.plan.cluster import ClusterInfo, Node, Shape

if TYPE_CHECKING:
    from lab.engine.docker.connection import Connection
    from lab.engine.doctor import Check, Wanted


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

    def read_files(self, node: Node, path: str) -> IO[bytes]:
        """A file or folder of a node, by its absolute path, as a tar whose entries begin with its name.

        Raises:
            ClusterError: there is none, or it cannot be read.
        """

    def write_files(self, node: Node, folder: str, archive: IO[bytes]) -> None:
        """Unpack a tar into a folder of a node, which has to be there.

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
class ImageMaker(Protocol):
    """Makes nodes of images that can be made upon others."""

    def image_connection(self) -> Connection:
        """To the Docker engine that makes images."""


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
            "leave --hosts out, or use --engine swarm or --engine slurm",
        )
    if shape.allocation:
        name, value = next(iter(shape.allocation.items()))
        raise ClusterUnfit(
            f"the {engine} engine has no scheduler that could be told {name}={value}",
            "leave --allocation out, or use --engine slurm",
        )
