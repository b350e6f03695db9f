"""Faults done and undone, one after the other in a cluster, whoever does it, and each in the journal before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress

from lab.errors import LabError
from lab.features.faults.fault_journal import BY_HAND, HEALING, IN_FORCE, UNDONE, Standing
from lab.features.faults.ground import ClusterGround
from lab.features.faults.kind import FaultKind, ReadBack
from lab.run.lock import ClusterLock, nodes_lock

_PATIENCE_S = 90.0
"""Longer than starting a node takes."""


class Breaker:
    """Does faults to one cluster, and undoes them.

    Args:
        ground: what they are done to.
        by: who does it: a run, or `lab fault`.
    """

    def __init__(self, ground: ClusterGround, by: str = BY_HAND) -> None:
        self.ground = ground
        self.by = by
        self._journal = ground.journal

    def _alone(self, purpose: str) -> AbstractContextManager[ClusterLock]:
        return nodes_lock(self.ground.engine, self.ground.cluster).held(purpose, _PATIENCE_S)

    def apply(self, what: FaultKind, until: float | None = None) -> tuple[str, ReadBack]:
        """Do it, and read back that it is in force; returns what the journal calls it, and what was found.

        What could be done in part only is undone.

        Raises:
            LabError: it cannot be done.
        """
        with self._alone(str(what)):
            identity = self._journal.begin(what, self.by, until)
            try:
                what.apply(self.ground)
                found = what.read_back(self.ground)
                if not found.in_force:
                    raise LabError(f"{what} was done, and is not in force")
            except (LabError, OSError):
                with suppress(LabError, OSError):  # what cannot be undone stays in the journal
                    self._undo(identity, what)
                raise
            self._journal.tell(identity, IN_FORCE)
        return identity, found

    def undo(self, identity: str, what: FaultKind) -> None:
        """Take it back; where that fails, it stays in the journal.

        Raises:
            LabError: it cannot be taken back.
        """
        with self._alone(f"healing {what}"):
            if any(one.id == identity for one in self._journal.standing()):  # else somebody else has
                self._undo(identity, what)

    def _undo(self, identity: str, what: FaultKind) -> None:
        self._journal.tell(identity, HEALING)
        what.undo(self.ground)
        self._journal.tell(identity, UNDONE)


def heal(breaker: Breaker, standing: Iterable[Standing], tell: Callable[[str], object]) -> list[Standing]:
    """Take back what the journal says, what came last first; returns what was, and tells of what could not be."""
    healed = []
    for one in reversed([*standing]):
        if one.what is None:
            tell(f"warning: {one.said} was done by another version of the lab: remove the cluster with `lab down`")
            continue
        try:
            breaker.undo(one.id, one.what)
        except (LabError, OSError) as error:
            tell(f"warning: {one.said} could not be taken back: {getattr(error, 'message', error)}")
        else:
            healed.append(one)
    return healed
