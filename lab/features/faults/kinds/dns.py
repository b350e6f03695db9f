"""Names do not resolve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lab.features.faults.link_fault import LinkFault
from lab.features.faults.links import ALL, tables
from lab.spec.kinds import NODE, Kind, node, read_text
from lab.spec.reading import Value


@dataclass(frozen=True, kw_only=True)
class Dns(LinkFault):
    """Questions for names are refused; what a process knows already it goes on to know."""

    does: ClassVar[str] = "names do not resolve on a node, or on all: questions are refused at once"
    example: ClassVar[str] = "dns: node2"
    shown_as: ClassVar[tuple[str, ...]] = ("name_resolution", "rendezvous")

    strict_cannot: ClassVar[str] = "a strict cluster cannot have: its nodes know one another's names and ask nobody"

    node: str
    """A node, or `all`."""

    @classmethod
    def value(cls) -> Kind:
        """The name of a node, or `all`."""
        name, allowed = node(), f"the name of a node, such as node2, or {ALL}"

        def read(value: Value) -> Dns:
            if value.kind == "text" and read_text(value, allowed) == ALL:
                return cls(node=ALL)
            return cls(node=name.read(value))

        return Kind(allowed, read, {"type": "string", "pattern": f"^({ALL}|{NODE})$"}, lambda data: data.node)

    @property
    def nodes(self) -> tuple[str, ...]:
        """That node."""
        return () if self.node == ALL else (self.node,)

    def tables(self, addresses: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """What each node is told."""
        return tables({}, addresses, nameless=list(addresses) if self.node == ALL else [self.node])

    def __str__(self) -> str:
        """`dns node2`."""
        return f"dns {self.node}"


KIND = Dns
