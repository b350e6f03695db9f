"""The network of a run: its links, their conditions, partitions, and profiles by name. Pure.

The sender of a packet applies rates, delays, and duplicates; the receiver applies drops, losses, and resets
(`on_node.links`). If several conditions apply to the same way, the most specific one counts: one way before a pair, a
pair before a node, a node before all. Conditions of the two nodes of one way add up.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain, permutations
from typing import Any

from lab.errors import UsageError
from lab.features.faults.on_node import combine_conditions
from lab.frozen import Frozen
from lab.spec import kinds
from lab.spec.declare import key_field
from lab.spec.reading import Value

SLOWEST, FASTEST = 10e3, 100e9
LONGEST_DELAY_S = 60
ALL = "all"
LINK_ALLOWED = "a node (node2: all its packets), one way (node2 -> node0), both ways (node2 - node0), or all"
_LINK = rf"(?P<one>{ALL}|{kinds.NODE})(?: *(?P<how>->|-) *(?P<other>{kinds.NODE}))?"
_BY_SENDER = ("rate_bits_per_s", "delay_s", "jitter_s", "duplicate", "corrupt", "reorder")
_BY_RECEIVER = ("loss", "drop", "reset")
_DELAY = kinds.duration_kind(LONGEST_DELAY_S)
_BITS = {f"{letter}bit": 1000**power for power, letter in enumerate(("", "k", "m", "g"))}
RATES_ALLOWED = "a rate such as 500kbit, 100mbit, or 2.5gbit: bits per second, powers of 1000"
SHARES_ALLOWED = "a share such as 5% or 0.05"
Way = tuple[str, str]
"""The sender and the receiver of packets."""


def parse_rate(value: str | float) -> float:
    """Parse a rate such as `100mbit` or `1.5 Gbit/s`, in any case, to bits a second; the unit is required."""
    return float(kinds.parse_quantity(value, lambda unit: unit.lower(), _BITS, RATES_ALLOWED))


def parse_share(value: str | float) -> float:
    """Parse a share such as `5%` or `0.05` to a fraction."""
    text = str(value).strip()
    percent = text.endswith("%")
    return float(kinds.parse_quantity(text.removesuffix("%"), str, {"": 0.01 if percent else 1}, SHARES_ALLOWED))


def rate_kind(lowest: float, highest: float) -> kinds.Kind:
    """Return the kind of rates from `lowest` to `highest` bits a second, both included."""
    bounds = f"from {lowest:g}bit to {highest / 1e9:g}gbit"
    schema = {"type": "string", "pattern": f"{kinds.QUANTITY}[kKmMgG]?[bB][iI][tT] *$"}
    limits = (lowest, highest)
    return kinds.quantity_kind(parse_rate, RATES_ALLOWED, bounds, limits, schema, lambda rate: f"{rate / 1e6:.12g}mbit")


def share_kind() -> kinds.Kind:
    """Return the kind of shares above 0 and up to 100%."""
    bounds = "more than 0 and at most 100%"
    schema = {"type": ["string", "number"], "pattern": f"{kinds.QUANTITY}%? *$", "exclusiveMinimum": 0, "maximum": 1}
    return kinds.quantity_kind(parse_share, SHARES_ALLOWED, bounds, (0, 1), schema, lambda one: f"{one * 100:.12g}%")


class Condition(Frozen):
    """The condition of a way; None: the network is not changed in this respect."""

    rate_bits_per_s: float | None = key_field(
        None, rate_kind(SLOWEST, FASTEST), "network: {rate: 100mbit}", "no limit", name="rate"
    )
    """The rate of a node to all others together; for a pair, the rate from one to the other."""
    delay_s: float | None = key_field(None, _DELAY, "network: {delay: 20ms}", "none", name="delay")
    """The extra delay of a packet, one way; a round trip takes twice that. Needs netem in the kernel."""
    jitter_s: float | None = key_field(None, _DELAY, "network: {delay: 20ms, jitter: 2ms}", "none", name="jitter")
    """The largest difference of the delay between packets; packets may overtake each other. Needs netem."""
    loss: float | None = key_field(None, share_kind(), "network: {loss: 1%}", "none")
    """The share of packets that get lost, at random."""


def condition_fields(condition: Condition) -> dict[str, float]:
    """Return the fields of a condition that are set, by name."""
    values = {one.name: getattr(condition, one.name) for one in fields(Condition)}
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class Link:
    """Ways between nodes, as users write them."""

    one: str
    """A node, or `all`."""
    how: str = ""
    """`->`: one way; `-`: both; empty: to and from all others."""
    other: str = ""

    def __str__(self) -> str:
        return f"{self.one} {self.how} {self.other}" if self.how else self.one

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that it names."""
        return tuple(name for name in (self.one, self.other) if name and name != ALL)

    @property
    def exactness(self) -> int:
        """Of two links for the same way, the one with the larger number counts."""
        return 0 if self.one == ALL else {"": 1, "-": 2, "->": 3}[self.how]

    def ways(self, nodes: Sequence[str]) -> list[Way]:
        """Return all its ways between these nodes."""
        if not self.how:
            return [way for way in permutations(nodes, 2) if self.one == ALL or self.one in way]
        ways = [(self.one, self.other), (self.other, self.one)][: 1 if self.how == "->" else 2]
        return [way for way in ways if {*way} <= {*nodes}]

    def cables(self, nodes: Iterable[str]) -> list[str]:
        """Return the nodes whose complete sending it covers."""
        return [] if self.how else [name for name in nodes if self.one in (ALL, name)]


def parse_link(text: str) -> Link:
    """Parse a link.

    Raises:
        UsageError: The text is no link.
    """
    match = re.fullmatch(_LINK, text.strip())
    if match is None or (match["how"] and match["one"] in (ALL, match["other"])):
        raise UsageError(f"found {text[:60]!r}; allowed: {LINK_ALLOWED}")
    return Link(match["one"], match["how"] or "", match["other"] or "")


def link_at_start(text: str) -> tuple[str, str]:
    """Return the link at the beginning of a text, and the rest of the text."""
    match = re.match(rf"{_LINK}(?![\w-])", text.strip())
    return (text.strip()[: match.end()], text.strip()[match.end() :].strip()) if match else ("", text)


def link_kind() -> kinds.Kind:
    """Return the kind of links of a run."""

    def read(value: Value) -> Link:
        text, nodes = kinds.read_text(value, LINK_ALLOWED), kinds.World.of(value.reading).nodes
        try:
            parsed = parse_link(text)
        except UsageError:
            raise value.refused(LINK_ALLOWED) from None
        if nodes and any(int(name.removeprefix("node")) >= nodes for name in parsed.nodes):
            raise value.refused(f"nodes from node0 to node{nodes - 1}")
        return parsed

    return kinds.Kind(
        LINK_ALLOWED, read, {"type": "string", "pattern": f"^ *{re.sub(r'[?]P<[a-z]+>', '', _LINK)} *$"}, str
    )


Layer = tuple[Link, Mapping[str, float]]
"""Links, and the condition of their ways."""


def tables_of(
    layers: Iterable[Layer], addresses: Mapping[str, str], nameless: Collection[str] = ()
) -> dict[str, dict[str, Any]]:
    """Return the data of the fault action `links`, for each node that has a part in it.

    Args:
        layers: The least specific first; a layer that is as specific as the one before is added, others replace it.
        addresses: Of every node.
        nameless: Nodes that cannot resolve names.
    """
    names, cables = list(addresses), dict[str, float]()
    met: dict[Way, tuple[dict[str, float], dict[str, float], int]] = {}
    for where, condition in layers:
        rest = dict(condition)
        rate = rest.pop("rate_bits_per_s", 0.0)
        own_cables = where.cables(names) if rate else []
        cables |= dict.fromkeys(own_cables, rate)
        for way in where.ways(names):
            before, level, exactness = met.get(way, ({}, {}, -1))
            if where.exactness != exactness or where.one == ALL:
                before, level = {**before, **level}, {}
            mine = rest if way[0] in own_cables else condition  # all packets of a node share its cable
            met[way] = before, combine_conditions(level, mine), where.exactness
    tables: dict[str, dict[str, Any]]
    tables = {node: {"address": address, "to": {}, "from": {}} for node, address in addresses.items()}
    for (sender, receiver), (before, level, _) in met.items():
        both = {**before, **level}
        if by_sender := {name: both[name] for name in _BY_SENDER if name in both}:
            tables[sender]["to"][addresses[receiver]] = by_sender
        if by_receiver := {name: both[name] for name in _BY_RECEIVER if name in both}:
            tables[receiver]["from"][addresses[sender]] = by_receiver
    for node, rate in cables.items():
        peers: dict[str, Any] = {address: {} for other, address in addresses.items() if other != node}
        tables[node] |= {"rate_bits_per_s": rate, "to": peers | tables[node]["to"]}
    for node in nameless:
        tables[node]["no_names"] = True
    return {node: table for node, table in tables.items() if table["to"] or table["from"] or len(table) > 3}


Drops = dict[str, tuple[str, ...]]
"""A partition of any shape: by node, the nodes whose packets it drops."""
PARTITION_ALLOWED = (
    "sets that do not see each other (node0,node1 / node2), halves, isolate node2, one-way node2 -> node0, "
    "bridge node1, ring; or a mapping from each node to the nodes whose packets it drops"
)
_SHAPES = rf"halves|ring|(?:isolate|bridge) +{kinds.NODE}|one-way +{kinds.NODE} *-> *{kinds.NODE}"
PARTITION = rf" *(?:{_SHAPES}|{kinds.NODE}(?: *, *{kinds.NODE})*(?: */ *{kinds.NODE}(?: *, *{kinds.NODE})*)+) *"


def named_nodes(text: str) -> tuple[str, ...]:
    """Return the nodes that a text names, in order."""
    return tuple(dict.fromkeys(match[0] for match in re.finditer(rf"\b{kinds.NODE}\b", text)))


def checked_partition(text: str) -> str:
    """Return the text of a partition with single spaces.

    Raises:
        UsageError: The text is no partition.
    """
    named = re.findall(rf"\b{kinds.NODE}\b", text)
    if not re.fullmatch(PARTITION, text) or len(named) != len(set(named)):
        raise UsageError(f"found {text[:60]!r}; allowed: {PARTITION_ALLOWED}")
    return re.sub(r" *, *", ",", re.sub(r" *(->|/) *", r" \1 ", " ".join(text.split())))


def find_drops(partition: str | Mapping[str, Sequence[str]], nodes: Sequence[str]) -> Drops:
    """Return whose packets each node drops, from the shape of a partition or a mapping.

    Raises:
        UsageError: It is no partition of these nodes.
    """
    by_node = _drops_of(partition, nodes) if isinstance(partition, str) else partition
    if not any(by_node.values()):
        raise UsageError(f"with {len(nodes)} nodes, a partition {partition} drops nothing", "use more nodes")
    return {node: tuple(names) for node, names in by_node.items() if names}


def _drops_of(shape: str, nodes: Sequence[str]) -> Drops:
    word, named = shape.split(maxsplit=1)[0], named_nodes(shape)
    if word == "one-way":
        return {named[1]: (named[0],)}
    if word == "ring":  # each sees its neighbours
        count = len(nodes)
        return {
            own: tuple(other for at, other in enumerate(nodes) if (at - index) % count not in (0, 1, count - 1))
            for index, own in enumerate(nodes)
        }
    rest = [node for node in nodes if node not in named]
    middle = (len(rest) + 1) // 2
    sets: list[Sequence[str]] = [named_nodes(part) for part in shape.split("/")]
    if word == "isolate":
        sets = [named, rest]
    elif word in ("halves", "bridge"):  # a bridge sees both halves, and is seen by both
        sets = [rest[:middle], rest[middle:]]
    return {node: tuple(chain(*(other for other in sets if other is not own))) for own in sets for node in own}


DATACENTER = "datacenter"
PROFILES = {
    "lan-1g": Condition(rate_bits_per_s=1e9),
    "lan-10g": Condition(rate_bits_per_s=10e9),
    "wan-40ms": Condition(rate_bits_per_s=100e6, delay_s=0.02, jitter_s=0.001, loss=0.0001),
    "wifi": Condition(rate_bits_per_s=100e6, delay_s=0.0015, jitter_s=0.001),
    DATACENTER: Condition(rate_bits_per_s=10e9),
}
"""By name; docs/network-reference.md has the sources of the numbers."""
BETWEEN_RACKS = Condition(rate_bits_per_s=1e9)
"""The condition of a pair of nodes in different racks of a datacenter."""
