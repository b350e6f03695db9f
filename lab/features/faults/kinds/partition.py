"""Nodes do not see each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lab.errors import UsageError
from lab.features.faults.kind import Chance, FaultKind
from lab.features.faults.link_fault import LinkFault
from lab.features.faults.links import tables
from lab.features.faults.partitions import ALLOWED, TEXT, checked, drops, named_in
from lab.spec.kinds import NODE, Kind, list_of, node, read_text
from lab.spec.reading import Value


@dataclass(frozen=True, kw_only=True)
class Partition(LinkFault):
    """Nodes drop packets of others, without a word: whoever waits for them waits."""

    does: ClassVar[str] = "nodes drop the packets of others, in sets, one way, or as a map says; nobody is told"
    example: ClassVar[str] = "partition: isolate node2"
    shown_as: ClassVar[tuple[str, ...]] = ("cut_off", "node_disconnected")

    said: str | Mapping[str, tuple[str, ...]]
    """Its shape, or each node with those whose packets it drops."""

    @classmethod
    def value(cls) -> Kind:
        """Its shape in words, or a map."""
        name = node()
        names = list_of(name, "a list of nodes")

        def read(value: Value) -> Partition:
            if value.kind != "mapping":
                text = read_text(value, ALLOWED)
                try:
                    return cls(said=checked(text))
                except UsageError:
                    raise value.refused(ALLOWED) from None
            return cls(said={name.read(one): names.read(others) for one, others in value.pairs(ALLOWED)})

        mapping = {"type": "object", "propertyNames": {"pattern": f"^{NODE}$"}, "additionalProperties": names.schema}
        text = {"type": "string", "pattern": f"^{TEXT}$"}
        return Kind(ALLOWED, read, {"anyOf": [text, mapping]}, lambda data: _plain(data.said))

    @classmethod
    def drawn(cls, chance: Chance) -> FaultKind | None:
        """One node that sees nobody, or of which one other sees nothing."""
        if len(chance.nodes) == 1:
            return None
        node = chance.one_of(chance.nodes)
        other = chance.one_of([name for name in chance.nodes if name != node])
        return cls(said=chance.one_of((f"isolate {node}", f"one-way {node} -> {other}")))

    @property
    def nodes(self) -> tuple[str, ...]:
        """Those that it names."""
        if isinstance(self.said, str):
            return named_in(self.said)
        return tuple(dict.fromkeys(name for node, others in self.said.items() for name in (node, *others)))

    def tables(self, addresses: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """What each node is told."""
        found = drops(self.said, list(addresses))
        return tables({(sender, node): {"drop": 1.0} for node, names in found.items() for sender in names}, addresses)

    def __str__(self) -> str:
        """`partition node0,node1 / node2`."""
        if isinstance(self.said, str):
            return f"partition {self.said}"
        return "partition " + "; ".join(f"{node} drops {', '.join(names)}" for node, names in self.said.items())


KIND = Partition


def _plain(said: str | Mapping[str, tuple[str, ...]]) -> Any:
    return said if isinstance(said, str) else {node: list(names) for node, names in said.items()}
