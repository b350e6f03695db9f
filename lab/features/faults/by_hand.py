"""Faults that a person does to a cluster, beside any run: `lab fault`, and `Cluster.fault`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from lab.errors import UsageError
from lab.features.faults.power import Powered, beside_runs
from lab.spec.reading import did_you_mean

if TYPE_CHECKING:
    from lab.features.faults.breaking import Breaker
    from lab.features.faults.fault_journal import Standing
    from lab.features.faults.kind import FaultKind


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
