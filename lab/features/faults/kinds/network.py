"""The whole network is like that of another place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lab.features.faults.link_fault import LinkFault
from lab.features.faults.network import Network, dump_network, network
from lab.spec.kinds import Kind


@dataclass(frozen=True, kw_only=True)
class WholeNetwork(LinkFault):
    """All links at once, as the key `network:` of a scenario has them."""

    does: ClassVar[str] = "all links at once are as the key `network:` has them, by a profile's name or in full"
    example: ClassVar[str] = "network: wan-40ms"

    like: Network

    @classmethod
    def value(cls) -> Kind:
        """A network."""
        kind = network()
        return kind._replace(read=lambda value: cls(like=kind.read(value)), dump=lambda data: dump_network(data.like))

    @property
    def nodes(self) -> tuple[str, ...]:
        """Those that it names."""
        return self.like.nodes

    def tables(self, addresses: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """What each node is told."""
        return self.like.tables(addresses)

    def __str__(self) -> str:
        """`network wan-40ms`."""
        said = dump_network(self.like)
        return f"network {said}" if isinstance(said, str) else f"network {_words(said)}"


KIND = WholeNetwork


def _words(said: Mapping[str, Any]) -> str:
    """`rate 100mbit, node2 rate 10mbit`."""
    words = [f"{name} {value}" for name, value in said.items() if not isinstance(value, Mapping)]
    links = said.get("links", {})
    return ", ".join([*words, *(f"{where} {_words(how)}" for where, how in links.items())])
