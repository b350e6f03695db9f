"""What a person does to a cluster, beside any run: nodes are stopped and started, faults are done and healed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from lab.engine.protocol import PowerControl, capable
from lab.errors import ClusterBusy, UsageError
from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo
from lab.run.lock import nodes_lock
from lab.spec.reading import did_you_mean

if TYPE_CHECKING:
    from lab.features.faults.breaking import Breaker
    from lab.features.faults.fault_journal import Standing
    from lab.features.faults.kind import FaultKind
    from lab.run.lock import ClusterLock
    from lab.run.place import Place


class Powered:
    """What `Cluster` has that cuts the power of its nodes, and gives it back."""

    if TYPE_CHECKING:
        lock: ClusterLock
        place: Place

    def stop(self, *nodes: str) -> ClusterInfo:
        """Stop nodes as a power cut would, also while a run goes on; they stay so until they are started.

        Args:
            nodes: their names, such as `"node2"`.

        Returns:
            The cluster as it is then.

        Raises:
            UsageError: there is no node of such a name.
            ClusterUnfit: there is no cluster.
            ClusterBusy: somebody makes it, changes it or removes it.
        """
        with _changing(self, "lab stop") as info:
            capable(self.place.engine, PowerControl).stop(
                [node for node in info.named(*nodes) if node.state != STOPPED]
            )
            return self.place.existing()

    def start(self, *nodes: str) -> ClusterInfo:
        """Start nodes that do not run, and wait until they can take part in a run; one that goes on may take them in.

        Args:
            nodes: their names; none: all that were stopped.

        Returns:
            The cluster as it is then.

        Raises:
            UsageError: there is no node of such a name.
            ClusterUnfit: there is no cluster.
            ClusterBusy: somebody makes it, changes it or removes it.
            ClusterError: a node does not start; the message says why.
        """
        with _changing(self, "lab start") as info:
            wanted = info.named(*nodes) if nodes else [node for node in info.nodes if node.state == STOPPED]
            down = [node for node in wanted if node.state != RUNNING]
            capable(self.place.engine, PowerControl).start(info, down, announce=self.place.announce)
            return self.place.existing()


@contextmanager
def _changing(cluster: Powered, purpose: str) -> Iterator[ClusterInfo]:
    """Hold the cluster where nobody has it; beside a run, only against others who change nodes."""
    place = cluster.place
    with nodes_lock(place.engine.name, place.name).held(purpose), beside_runs(cluster, purpose):
        yield place.existing()


@contextmanager
def beside_runs(cluster: Powered, purpose: str) -> Iterator[None]:
    """Hold the cluster where nobody has it; not beside those who make, change or remove it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(cluster.lock.held(purpose, exclusive=True))
        except ClusterBusy:
            if (cluster.lock.holder() or {}).get("exclusive"):
                raise
        yield


class InForce:
    """A fault that is in force; as a context manager it is healed at the end of its block."""

    def __init__(self, breaker: Breaker, identity: str, what: FaultKind, found: Mapping[str, Any]) -> None:
        self.what = what
        self.found = found
        """What was read back where it was done."""
        self._breaker, self._identity = breaker, identity

    def heal(self) -> None:
        """Take it back; does nothing where somebody else has.

        Raises:
            LabError: it cannot be taken back.
        """
        self._breaker.undo(self._identity, self.what)

    def __enter__(self) -> InForce:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.heal()

    def __repr__(self) -> str:
        return f"<{self.what}, in force>"


class Breakable(Powered):
    """What `Cluster` has that breaks it on purpose, and heals it."""

    def fault(self, what: str | FaultKind, *words: str, for_s: float | None = None) -> InForce:
        """Break something, also while a run goes on; it stays so until it is healed, or the next run begins or ends.

        Args:
            what: a kind, such as `"kill"`, or one with its data, such as `Kill(node="node2")`.
            words: what `lab fault` would be told behind the kind, such as `"node2"`.
            for_s: how long it is meant to be in force; whoever calls heals it.

        Returns:
            The fault, in force; also a context manager that heals it.

        Raises:
            UsageError: there is no such kind, node or rank, or the engine cannot do it.
            ClusterUnfit: there is no cluster.
            ClusterBusy: somebody makes it, changes it or removes it.
            LabError: it could not be done.
        """
        from lab.features.faults.breaking import Breaker
        from lab.features.faults.ground import ClusterGround

        wanted = fault_of(what, *words) if isinstance(what, str) else what
        _refuse_by_worker(wanted)
        with beside_runs(self, "lab fault"):
            info = self.place.existing()
            info.named(*wanted.nodes)
            cannot = wanted.why_not(self.place.engine.name) or (wanted.strict_cannot if info.shape.strict else "")
            if cannot:
                raise UsageError(f"cluster {info.name} cannot have {wanted}, which {cannot}")
            breaker = Breaker(ClusterGround(self.place.engine, info))
            identity, found = breaker.apply(wanted, time.time() + for_s if for_s is not None else None)
        return InForce(breaker, identity, wanted, found.found)

    def faults(self) -> list[Standing]:
        """What is broken on purpose now, in its order."""
        from lab.features.faults.fault_journal import FaultJournal

        return FaultJournal(self.place.engine.name, self.place.name).standing()

    def heal(self) -> list[Standing]:
        """Take back everything that is broken on purpose, what came last first; returns what was.

        What cannot be taken back is announced, and stands.
        """
        if not self.faults():
            return []
        from lab.features.faults.healing import heal_all

        with beside_runs(self, "lab fault"):
            return heal_all(self.place.engine, self.place.name, self.place.find(), self.place.announce)


def fault_of(kind: str, *words: str) -> FaultKind:
    """A fault as `lab fault` is told it: a kind, and what there is to say of it.

    Raises:
        UsageError: there is no such kind, it is one that only a rank can do, or it is told too little, or too much.
        ScenarioError: it is told something else than it allows.
    """
    from lab.features.faults.kind import fault_kinds
    from lab.features.faults.text import parse_kind

    kinds = fault_kinds()
    if kind not in kinds:
        raise UsageError(
            f"there is no kind of fault {kind!r}{did_you_mean(kind, kinds)}", "`lab fault kinds` lists them"
        )
    _refuse_by_worker(kinds[kind])
    if not words:
        raise UsageError(f"{kind} needs to be told what", f"as in `lab fault {kinds[kind].on_the_command_line()}`")
    return parse_kind(kind, kinds[kind].parse(words))


def _refuse_by_worker(what: FaultKind | type[FaultKind]) -> None:
    from lab.features.faults.kind import key_of

    if what.by_worker:
        raise UsageError(
            f"{key_of(what if isinstance(what, type) else type(what))} is done by a rank itself, at a point of its own",
            "say which in a scenario's `faults:`, or with `lab run --fault`",
        )
