"""Links between nodes: which of them is meant, what condition they are in, and what each node is told of that. Pure.

What a packet meets is done by the node that sends it or by the one that takes it (`on_node.links`): rates, delays and
what is sent twice by the sender; what is dropped, lost or reset by the receiver.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from lab.errors import UsageError
from lab.spec import kinds
from lab.spec.declare import key
from lab.spec.kinds import NODE, World
from lab.spec.reading import Value

SLOWEST, FASTEST = 10e3, 100e9
LONGEST_DELAY_S = 60
ALL = "all"
LINK_ALLOWED = "a node (node2: all that it sends and gets), one way (node2 -> node0), both ways (node2 - node0), or all"
_LINK = rf"(?P<one>{ALL}|{NODE})(?: *(?P<how>->|-) *(?P<other>{NODE}))?"
_BY_SENDER = ("rate_bits_per_s", "delay_s", "jitter_s", "duplicate", "corrupt", "reorder")
_BY_RECEIVER = ("loss", "drop", "reset")
_DELAY = kinds.duration(LONGEST_DELAY_S)
Way = tuple[str, str]
"""The sender and the receiver of packets."""


@dataclass(frozen=True, kw_only=True)
class Condition:
    """What packets on a way meet; None: nothing of that sort."""

    rate_bits_per_s: float | None = key(
        None, kinds.rate(SLOWEST, FASTEST), "network: {rate: 100mbit}", "no limit", name="rate"
    )
    """How fast a node sends to all others together, or, of a pair, one of them to the other."""
    delay_s: float | None = key(None, _DELAY, "network: {delay: 20ms}", "none", name="delay")
    """How much longer a packet takes, one way: there and back, twice that. Needs netem in the kernel."""
    jitter_s: float | None = key(None, _DELAY, "network: {delay: 20ms, jitter: 2ms}", "none", name="jitter")
    """By how much that differs at most, from packet to packet; packets may overtake each other. Needs netem."""
    loss: float | None = key(None, kinds.share(), "network: {loss: 1%}", "none")
    """The share of packets that is lost, by chance."""


@dataclass(frozen=True, kw_only=True)
class Broken(Condition):
    """A condition that no cable is in by itself."""

    duplicate: float | None = None
    """The share of packets that arrives twice."""
    corrupt: float | None = None
    """The share of packets with a bit flipped."""
    reorder: float | None = None
    """The share of packets that is not delayed, and so overtakes others."""
    drop: float | None = None
    """1: nothing arrives."""
    reset: float | None = None
    """1: each packet of a TCP connection is answered by its reset."""


def asked(condition: Condition) -> dict[str, float]:
    """What a condition says, by name."""
    return {one.name: value for one in fields(condition) if (value := getattr(condition, one.name)) is not None}


@dataclass(frozen=True)
class Link:
    """Some ways between nodes, as people say them."""

    one: str
    """A node, or `all`."""
    how: str = ""
    """`->`: one way; `-`: both; empty: to and from all others."""
    other: str = ""

    def __str__(self) -> str:
        return f"{self.one} {self.how} {self.other}" if self.how else self.one

    @property
    def nodes(self) -> tuple[str, ...]:
        """Those that it names."""
        return tuple(name for name in (self.one, self.other) if name and name != ALL)

    @property
    def exactness(self) -> int:
        """The more exact of two that speak of the same way is meant."""
        return 0 if self.one == ALL else {"": 1, "-": 2, "->": 3}[self.how]

    def ways(self, nodes: Iterable[str]) -> list[Way]:
        """All that it means, of these nodes."""
        names = list(nodes)
        if self.how:
            ways = [(self.one, self.other), (self.other, self.one)][: 1 if self.how == "->" else 2]
            return [way for way in ways if set(way) <= set(names)]
        every = [(sender, receiver) for sender in names for receiver in names if sender != receiver]
        return [way for way in every if self.one == ALL or self.one in way]

    def cables(self, nodes: Iterable[str]) -> list[str]:
        """The nodes whose whole sending it means."""
        return [] if self.how else [name for name in nodes if self.one in (ALL, name)]


def parse_link(text: str) -> Link:
    """The link that a text means.

    Raises:
        UsageError: it means none.
    """
    match = re.fullmatch(_LINK, text.strip())
    if match is None or (match["how"] and match["one"] in (ALL, match["other"])):
        raise UsageError(f"found {text[:60]!r}; allowed: {LINK_ALLOWED}")
    return Link(match["one"], match["how"] or "", match["other"] or "")


def link_at_start(text: str) -> tuple[str, str]:
    """The link that a text begins with, and the rest of it."""
    match = re.match(rf"{_LINK}(?![\w-])", text.strip())
    return (text.strip()[: match.end()], text.strip()[match.end() :].strip()) if match else ("", text)


def link() -> kinds.Kind:
    """Some links of a run."""

    def read(value: Value) -> Link:
        text, nodes = kinds.read_text(value, LINK_ALLOWED), World.of(value.reading).nodes
        try:
            found = parse_link(text)
        except UsageError:
            raise value.refused(LINK_ALLOWED) from None
        if nodes and any(int(name.removeprefix("node")) >= nodes for name in found.nodes):
            raise value.refused(f"nodes from node0 to node{nodes - 1}")
        return found

    return kinds.Kind(LINK_ALLOWED, read, {"type": "string", "pattern": f"^ *{_plain(_LINK)} *$"}, str)


def _plain(pattern: str) -> str:
    return re.sub(r"\?P<\w+>", "", pattern)


def tables(
    conditions: Mapping[Way, Mapping[str, float]],
    addresses: Mapping[str, str],
    cables: Mapping[str, float] | None = None,
    nameless: Sequence[str] = (),
) -> dict[str, dict[str, Any]]:
    """What each node is told, as the deed `links` takes it; only nodes that have to do something.

    Args:
        conditions: of each way.
        addresses: of every node.
        cables: bits a second of all that a node sends to others, by node.
        nameless: nodes that can ask for no name.
    """
    told: dict[str, dict[str, Any]] = {}

    def table(node: str) -> dict[str, Any]:
        return told.setdefault(node, {"address": addresses[node], "to": {}, "from": {}})

    for (sender, receiver), condition in conditions.items():
        left = {name: condition[name] for name in _BY_SENDER if name in condition}
        taken = {name: condition[name] for name in _BY_RECEIVER if name in condition}
        if left:
            table(sender)["to"][addresses[receiver]] = left
        if taken:
            table(receiver)["from"][addresses[sender]] = taken
    for node, rate in (cables or {}).items():
        own = table(node)
        own["rate_bits_per_s"] = rate
        for other, address in addresses.items():
            if other != node:
                own["to"].setdefault(address, {})
    for node in nameless:
        table(node)["no_names"] = True
    return told


def on_link(
    where: Link, condition: Condition, nodes: Sequence[str]
) -> tuple[dict[Way, dict[str, float]], dict[str, float]]:
    """One condition on some links: by way, and the cables of nodes."""
    said = asked(condition)
    rate = said.get("rate_bits_per_s")
    cables = dict.fromkeys(where.cables(nodes), rate) if rate else {}
    rest = {name: value for name, value in said.items() if name != "rate_bits_per_s"}
    # a cable is shared by all that its node sends
    return {way: dict(rest if way[0] in cables else said) for way in where.ways(nodes)}, cables
