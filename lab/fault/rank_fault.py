"""Kinds that are done to a rank: by the agent of its node, or by its worker itself, which its event holds for that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar

from lab.errors import ClusterError
from lab.fault.kind import Chance, FaultKind, Ground, Harm
from lab.fault.when import said_well
from lab.keys.declare import dump_keys, key, keys_of, read_keys
from lab.keys.kinds import Kind
from lab.keys.value import Value
from lab.keys.world import rank


@dataclass(frozen=True, kw_only=True)
class RankFault(FaultKind):
    """A kind whose value is a rank, or a mapping with the keys of the class."""

    rank: int = key(MISSING, rank(), "signal: {rank: 2}")
    """The rank that it is done to."""

    @classmethod
    def value(cls) -> Kind:
        """The rank, or a mapping with that and what else there is to say."""
        keys = keys_of(cls)
        more = f", or a mapping with the keys {', '.join(f'{name} ({one.kind.allowed})' for name, one in keys.items())}"
        allowed = f"a rank{more if len(keys) > 1 else ''}"

        def read(value: Value) -> Any:
            if value.kind != "mapping" or len(keys) == 1:
                return cls(rank=rank().read(value))
            if "rank" not in [name.raw for name, _ in value.pairs(allowed)]:
                raise value.refused(allowed, " without rank")
            said = read_keys(value, cls)  # where one of them is a problem, that has been said
            return said_well(value, lambda: cls(**{"rank": 0, **said}))

        def dump(data: Any) -> Any:
            said = dump_keys(data)
            return said if len(said) > 1 else data.rank

        properties = {name: one.kind.schema for name, one in keys.items()}
        mapping = {"type": "object", "additionalProperties": False, "properties": properties, "required": ["rank"]}
        schema = {"anyOf": [rank().schema, mapping]} if len(keys) > 1 else rank().schema
        return Kind(allowed, read, schema, dump)

    @property
    def ranks(self) -> tuple[int, ...]:
        """That rank."""
        return (self.rank,)

    def node_in(self, ground: Ground) -> str:
        """The node of the rank.

        Raises:
            ClusterError: no run goes on that has it.
        """
        if self.rank not in ground.ranks:
            raise ClusterError(f"{self}: no run goes on that has a rank {self.rank}", "start one, then say it again")
        return ground.ranks[self.rank]


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
        """What `lab.node.recorder.own_deeds` is told."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class ChangedData(OwnDeed):
    """A kind that changes one element of what a call brings."""

    harm: ClassVar[Harm] = "spoils"
    of_call: ClassVar[bool] = True
