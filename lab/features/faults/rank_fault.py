"""Kinds that are done to a rank: by the agent of its node, or by its worker itself, which its event holds for that."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar

from lab.errors import ClusterError
from lab.features.faults.keyed import alone_or_mapping
from lab.features.faults.kind import Chance, FaultKind, Ground, Harm
from lab.spec.declare import key
from lab.spec.kinds import Kind, rank, whole_number
from lab.words import plural


@dataclass(frozen=True, kw_only=True)
class RankFault(FaultKind):
    """A kind whose value is a rank, or a mapping with the keys of the class."""

    rank: int = key(MISSING, rank(), "signal: {rank: 2}")
    """The rank that it is done to."""

    @classmethod
    def value(cls) -> Kind:
        """The rank, or a mapping with that and what else there is to say."""
        return alone_or_mapping(cls, "rank", "a rank")

    @property
    def ranks(self) -> tuple[int, ...]:
        """That rank."""
        return (self.rank,)

    def node_of(self, ground: Ground) -> str | None:
        """The node of the rank; None: no run has it. Whoever does not run it asks the nodes whose rank runs."""
        if ground.ranks:
            return ground.ranks.get(self.rank)
        running = (node for node in ground.addresses if ground.running(node))
        return next((node for node in running if ground.look_at(node, "signal", {"rank": self.rank})["state"]), None)

    def node_in(self, ground: Ground) -> str:
        """The node of the rank.

        Raises:
            ClusterError: no run goes on that has it.
        """
        node = self.node_of(ground)
        if node is None:
            raise ClusterError(f"{self}: no run goes on that has a rank {self.rank}", "start one, then say it again")
        return node


@dataclass(frozen=True, kw_only=True)
class OwnDeed(RankFault):
    """A kind that the worker of the rank does itself, where its call, phase or note holds it."""

    by_worker: ClassVar[bool] = True
    harm: ClassVar[Harm] = "loses"

    @classmethod
    def drawn(cls, chance: Chance) -> FaultKind | None:
        """One of any rank."""
        return cls(rank=chance.one_of(chance.ranks))

    @property
    def deed(self) -> Mapping[str, Any]:
        """What `lab.features.faults.on_node.own_deeds` is told."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class ChangedData(OwnDeed):
    """A kind that changes one element of what a call brings."""

    harm: ClassVar[Harm] = "spoils"
    of_call: ClassVar[bool] = True
    element: int = key(0, whole_number(0, 2**40), "element: 5")
    """Which one, over all tensors of the call, counted from 0."""

    def unfit(self, brought: Sequence[Mapping[str, Any]]) -> str:
        """That the call brings no such element, or one that cannot be changed so."""
        first = 0
        for tensor in brought:
            if self.element < first + tensor["elements"]:
                return self.unfit_number(str(tensor["dtype"]), int(tensor["bits"]))
            first += tensor["elements"]
        return f"the call brings {plural(first, 'element')}, and none of number {self.element}"

    @abstractmethod
    def unfit_number(self, dtype: str, bits: int) -> str:
        """Why a number of this sort, of so many bits, cannot be changed so; empty: it can."""
