"""Kinds of faults of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING
from typing import Any, ClassVar

from lab.errors import LabError
from lab.features.faults.kinds import AgentFault, FaultKind
from lab.features.faults.target import ClusterTarget
from lab.spec.declare import key_field
from lab.spec.kinds import duration_kind, node_kind, number_kind, size_kind
from lab.words import format_limit


class NodeFault(FaultKind):
    """A kind whose value is the name of a node, or a mapping with the keys of the class."""

    draws: ClassVar[Mapping[str, Sequence[Any]] | None] = {}
    runs: ClassVar[bool] = False
    """Whether its node runs while it is in force, for a kind that stops or starts nodes."""
    node: str = key_field(MISSING, node_kind(), "kill: node2")
    """The node that it acts on."""

    def read_back(self, target: ClusterTarget) -> dict[str, Any]:
        """Return whether the node runs, or does not, as expected."""
        return {"in_force": target.running(self.node) is self.runs}


class PowerLost(NodeFault):
    """A kind after which the node does not run; healing it starts the node."""

    leaves_running: ClassVar[bool | None] = False

    def apply(self, target: ClusterTarget) -> None:
        """Kill the node, if it runs."""
        try:
            target.kill(self.node)
        except (LabError, OSError):
            if target.running(self.node):
                raise

    def undo(self, target: ClusterTarget) -> None:
        """Start the node again."""
        if not target.running(self.node):
            target.start(self.node)


class Kill(PowerLost):
    """All processes of the node end at once; its peers see closed connections."""

    does = "kills all processes of a node; its peers see closed connections"
    example = "kill: node2"


class PowerOff(PowerLost):
    """The node loses its network before its processes end: peers see no closed connection, as in a power cut."""

    does = "cuts the power of a node: its peers see nothing"
    example = "power_off: node2"
    needs = "cable"

    def apply(self, target: ClusterTarget) -> None:
        """Pull the cable, then kill the node."""
        if target.running(self.node):
            target.ask(self.node, "apply_cable", {})
            super().apply(target)


class Restart(PowerLost):
    """All processes of the node end and its agent restarts; a run continues there if its launcher supports it."""

    does = "kills a node and starts it again"
    example = "restart: node2"
    leaves_running = None
    runs = True

    def apply(self, target: ClusterTarget) -> None:
        """Kill the node, and start it again."""
        super().apply(target)
        target.start(self.node)


class Stop(PowerLost):
    """The workers get SIGTERM, and all processes end after the grace period, as in unannounced maintenance."""

    does = "shuts a node down: SIGTERM to its workers, then the end after a grace period"
    example = "stop: {node: node2, grace: 2s}"
    grace_s: float = key_field(1.0, duration_kind(3600), example, name="grace")
    """The time that the workers have to save their state."""

    def apply(self, target: ClusterTarget) -> None:
        """Have the agent begin the shutdown."""
        if target.running(self.node):
            target.ask(self.node, "apply_shutdown", self.amounts)

    def undo(self, target: ClusterTarget) -> None:
        """Cancel the shutdown, or start the node again."""
        if target.running(self.node):
            with suppress(LabError):  # the node has just ended
                target.ask(self.node, "undo_shutdown", {})
        super().undo(target)

    def read_back(self, target: ClusterTarget) -> dict[str, Any]:
        """Return whether the shutdown has begun, or is over."""
        with suppress(LabError):
            if target.running(self.node):
                return target.ask(self.node, "inspect_shutdown", {})
        return super().read_back(target)


class Start(NodeFault):
    """The node starts again and joins the run if the launcher adds it."""

    does = "starts a stopped or killed node, as `lab start` does"
    example = "start: node2"
    leaves_running = runs = True
    draws = None

    def apply(self, target: ClusterTarget) -> None:
        """Start the node if it does not run, and wait until its agent can fork workers."""
        if not target.running(self.node):
            target.start(self.node)

    def undo(self, target: ClusterTarget) -> None:
        """Do nothing: nodes of a cluster run."""


class Pause(NodeFault):
    """The processes of the node are paused; its kernel still acknowledges packets of peers."""

    does = "freezes all processes of a node, also its agent, until healed"
    example = "pause: node2"
    harm = "slows"

    def apply(self, target: ClusterTarget) -> None:
        """Pause the processes."""
        target.pause(self.node)

    def undo(self, target: ClusterTarget) -> None:
        """Resume the processes."""
        target.resume(self.node)

    def read_back(self, target: ClusterTarget) -> dict[str, Any]:
        """Return whether the processes are paused."""
        return {"in_force": target.paused(self.node)}


class LimitFault(NodeFault):
    """A kind that limits a node; healing it restores the original limit."""

    needs = "limits"
    limited: ClassVar[str]
    """The resource: `cpus` or `memory_bytes`."""

    @property
    def most(self) -> int | float:
        """The limit."""
        (most,) = self.amounts.values()
        return most  # type: ignore[no-any-return]

    def apply(self, target: ClusterTarget) -> None:
        """Set the limit."""
        target.limit(self.node, self.limited, self.most)

    def undo(self, target: ClusterTarget) -> None:
        """Restore the original limit."""
        if target.running(self.node):
            target.limit(self.node, self.limited, None)

    def read_back(self, target: ClusterTarget) -> dict[str, Any]:
        """Return the current limit."""
        now = target.throttle(self.node, self.limited)
        return {"in_force": abs(now - self.most) < 0.01, self.limited: now}


class Cpu(LimitFault):
    """Limit the node's cores; healing restores the cores that it had."""

    does = "limits the cores of a node"
    example = "cpu: {node: node1, cores: 0.2}"
    template = "cpu of {cores:g} cores for {node}"
    harm = "slows"
    limited = "cpus"
    draws: ClassVar = {"cores": (0.2,)}
    cores: float = key_field(MISSING, number_kind("cores, more than 0", above=0.0, high=4096.0), example)
    """The number of cores, such as 0.5."""


class Memory(LimitFault):
    """Limit the node's memory; healing restores the memory that it had."""

    does = "limits the memory of a node: the kernel kills what does not fit"
    example = "memory: {node: node1, limit: 300MiB}"
    draws = None  # which limit is too low depends on the script
    limited = "memory_bytes"
    limit_bytes: int = key_field(MISSING, size_kind(6 << 20, 1 << 50), example, name="limit")
    """The limit."""

    def __str__(self) -> str:
        """`memory of 300 MiB for node1`."""
        return f"memory of {format_limit(self.limit_bytes)} for {self.node}"


class Disconnect(AgentFault, NodeFault):
    """The node's network is down; its processes continue, and its connections stay open."""

    does = "unplugs a node's network cable; its address stays"
    example = "disconnect: node2"
    passes = True
    needs = "cable"
    by_agent = "cable"


class DiskFull(AgentFault, NodeFault):
    """Writes of the node's ranks to files fail with ENOSPC; writes to mapped files are not affected."""

    does = "fails file writes of a node's ranks with `No space left on device`"
    example = "disk_full: node2"
    of_writes = True
    by_agent = "disk"

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Refuse writes."""
        return {"full": True}


class DiskSlow(AgentFault, NodeFault):
    """Each write to a file, and each fsync, takes longer."""

    does = "slows file writes and fsync of a node's ranks"
    example = "disk_slow: {node: node2, by: 50ms}"
    template = "{key} {node} by {by_s:g}s"
    harm = "slows"
    of_writes = True
    draws = None
    by_agent = "disk"
    by_s: float = key_field(0.1, duration_kind(600), example, name="by")
    """The extra time of each write."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The delay of writes."""
        return {"delay_s": self.by_s}


class Hog(AgentFault, NodeFault):
    """Another process on the node uses almost all memory; if a rank needs more, the kernel kills the rank."""

    does = "uses up the memory of a node except for a little"
    example = "hog: {node: node2, leave: 64MiB}"
    needs = "memory"
    draws = None
    by_agent = "hog"
    patience_s = 20.0
    leave_bytes: int = key_field(64 << 20, size_kind(1 << 20, 1 << 40), example, "64MiB", name="leave")
    """The memory that stays free."""

    def __str__(self) -> str:
        """`hog node2 to 67 MB`."""
        return f"hog {self.node} to {format_limit(self.leave_bytes)}"
