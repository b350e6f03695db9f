"""Kinds of faults on links between nodes: each node's agent applies its part and reports the effect."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from itertools import combinations, permutations
from typing import Any, ClassVar, cast

from lab.errors import LabError, MachineLacks, UsageError
from lab.features.faults import network as net
from lab.features.faults.kinds import Chance, FaultKind, Harm, key_of, read_fault
from lab.features.faults.network import ALL, PARTITION_ALLOWED, Condition, Link, condition_fields, share_kind, tables_of
from lab.features.faults.on_node import LATE, NO_NETEM
from lab.features.faults.target import ClusterTarget
from lab.spec import kinds
from lab.spec.declare import dump_keys, key_field, keys_of, mapping_schema, read_keys
from lab.spec.reading import Value

_HINT = "load the module sch_netem, or use another kernel; rate, loss, duplicate, partition, and reset need none"
_MET = {"drop": "dropped", "loss": "lost", "reset": "reset", "duplicate": "doubled", "names": "unanswered"}
"""Names in results for the effects on packets."""


class LinkFault(FaultKind):
    """A kind that acts on links."""

    harm: ClassVar[Harm] = "slows"
    needs = "links"

    def tables(self, addresses: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """Return the data for each node, given the addresses of the nodes."""
        raise NotImplementedError

    def _node_tables(self, target: ClusterTarget) -> list[tuple[str, dict[str, Any]]]:
        parts = self.tables(target.addresses)
        return [(node, {**tables, "part": str(self)}) for node, tables in parts.items() if target.running(node)]

    def apply(self, target: ClusterTarget) -> None:
        """Inject it on every running node."""
        try:
            for node, tables in self._node_tables(target):
                target.ask(node, "apply_links", tables)
        except LabError as error:
            why = f"{self} has no effect: {error.message}"
            raise (MachineLacks(why, _HINT) if NO_NETEM in error.message else LabError(why)) from None

    def check(self, target: ClusterTarget) -> None:
        """Check whether the nodes' kernel supports delays, if it has any; all nodes share one machine.

        Raises:
            MachineLacks: It does not.
        """
        tables = self._node_tables(target)
        late = any(how.get(name) for _, one in tables for how in one["to"].values() for name in LATE)
        if late and not target.ask(tables[0][0], "inspect_links", {"address": tables[0][1]["address"]})["netem"]:
            raise MachineLacks(f"{self} has no effect: {tables[0][0]}: {NO_NETEM}", _HINT)

    def renew(self, target: ClusterTarget) -> None:
        """Inject it again on every running node that is not paused."""
        for node, tables in self._node_tables(target):
            if not target.paused(node):
                target.ask(node, "apply_links", tables)

    def count_effects(self, target: ClusterTarget) -> Mapping[str, Any]:
        """Return the counts of dropped, lost, reset, and duplicated packets."""
        return count_met([target.ask(node, "inspect_links", tables) for node, tables in self._node_tables(target)])

    def undo(self, target: ClusterTarget) -> None:
        """Undo it on every running node."""
        for node, address in target.addresses.items():
            if target.running(node):
                target.ask(node, "undo_links", {"part": str(self), "address": address})

    def read_back(self, target: ClusterTarget) -> dict[str, Any]:
        """Return whether it is in force on every running node, its effects so far, and a measurement."""
        tables = self._node_tables(target)
        states = [target.ask(node, "inspect_links", one) for node, one in tables]
        if not all(str(self) in state["parts"] for state in states):
            return {"in_force": False}
        return {"in_force": True, **count_met(states), **self._measured(target, tables)}

    def _measured(self, target: ClusterTarget, tables: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
        """Measure the rate or delay between two nodes, if the fault has one."""
        for node, one in tables:
            for peer, how in one["to"].items():
                rate = min(filter(None, (how.get("rate_bits_per_s"), one.get("rate_bits_per_s"))), default=None)
                aims = {"asked_rate_bits_per_s": rate, "asked_delay_s": how.get("delay_s")}
                if wanted := {name: aim for name, aim in aims.items() if aim}:
                    measured = target.ask(node, "inspect_link_probe", {"address": one["address"], "peer": peer})
                    other = next(name for name, address in target.addresses.items() if address == peer)
                    return {**wanted, **measured, "measured": f"{node} -> {other}"}
        return {}


def count_met(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the total counts of dropped, lost, reset, and duplicated packets of all nodes."""
    packets = Counter[str]()
    for state in states:
        for name, count in state["met"].items():
            if word := _MET.get(name.partition(" ")[0]):
                packets[f"{word}_packets"] += count
    were_reset = sum(state.get("were_reset", 0) for state in states)
    return {**packets, **({"reset_connections": were_reset} if were_reset else {})}


class OnLink(LinkFault):
    """A kind whose value names a link, and amounts: `node2 50ms jitter 5ms`.

    Each key except the link sets the attribute of the same name in the condition.
    """

    link: Link = key_field(MISSING, net.link_kind(), "link: node2 -> node0")
    """The links: of a node, one way, both ways, or all."""

    def condition(self) -> Mapping[str, float]:
        """Return the condition of the link."""
        return {name: value for name, value in self.amounts.items() if value is not None}

    @classmethod
    def targets(cls, chance: Chance) -> Sequence[Any]:
        """Return all links of each node."""
        return [Link(node) for node in chance.nodes]

    @classmethod
    def short(cls) -> kinds.Kind:
        """Return the kind of words in the order of its keys."""
        _, *amounts = keys_of(cls)
        allowed = f"words such as {cls.example.partition(': ')[2]!r}"

        def read(value: Value) -> Any:
            return read_fault(cls, _as_mapping(value, amounts, allowed), allowed)

        return kinds.Kind(allowed, read, {"type": "string"})

    def tables(self, addresses: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """Return the data for each node."""
        return tables_of([(self.link, self.condition())], addresses)

    def __str__(self) -> str:
        """`delay node2 50ms jitter 5ms`."""
        where, *values = dump_keys(self).items()
        words = [f"{name} {value}" for name, value in values]
        words[:1] = [str(value) for _, value in values[:1]]
        return " ".join([key_of(type(self)), where[1], *words])


def _as_mapping(value: Value, names: Sequence[str], allowed: str) -> Value:
    """Convert words to a mapping: a link, the first amount, and pairs of a name and an amount."""
    from yaml.nodes import MappingNode, ScalarNode

    def scalar(word: str) -> ScalarNode:
        return ScalarNode("tag:yaml.org,2002:str", word, value.start, value.start)

    where, rest = net.link_at_start(kinds.read_text(value, allowed))
    words = ["link", where, *names[:1], *rest.split()] if rest else ["link", where]
    if not where or len(words) % 2 or (rest and not names):
        raise value.refused(allowed)
    pairs = [(scalar(name), scalar(word)) for name, word in zip(words[::2], words[1::2], strict=True)]
    node = MappingNode("tag:yaml.org,2002:map", pairs, value.start, value.start)
    return Value(node, value.field, value.reading)


class Corrupt(OnLink):
    """A bit of a packet is flipped at random; the receiver's checksum detects it, and it drops the packet."""

    does = "flips a bit of some packets, so the receiver drops them; needs netem in the kernel"
    example = "corrupt: node2 1%"
    corrupt: float = key_field(MISSING, share_kind(), "share: 1%", name="share")
    """The share of packets."""


class Delay(OnLink):
    """The sender holds each packet back."""

    does = "delays packets, one way; needs netem in the kernel"
    example = "delay: node2 50ms jitter 5ms"
    delay_s: float = key_field(MISSING, kinds.duration_kind(net.LONGEST_DELAY_S), "by: 50ms", name="by")
    """The extra delay, one way."""
    jitter_s: float | None = key_field(
        None, kinds.duration_kind(net.LONGEST_DELAY_S), "jitter: 5ms", "none", name="jitter"
    )
    """The largest difference of the delay between packets."""


class Duplicate(OnLink):
    """Packets are sent twice at random."""

    does = "delivers some packets twice"
    example = "duplicate: node2 10%"
    duplicate: float = key_field(MISSING, share_kind(), "share: 10%", name="share")
    """The share of packets."""


class Loss(OnLink):
    """The receiver drops packets at random, without a message to the sender."""

    does = "loses some packets"
    example = "loss: node2 5%"
    draws: ClassVar = {"loss": (0.05, 0.2)}
    loss: float = key_field(MISSING, share_kind(), "share: 5%", name="share")
    """The share of packets."""


class Rate(OnLink):
    """Limit the rate at which a node sends."""

    does = "limits the data rate from a node to all others together, or on one link"
    example = "rate: node2 100mbit"
    draws: ClassVar = {"rate_bits_per_s": (1e6, 10e6, 100e6)}
    rate_bits_per_s: float = key_field(MISSING, net.rate_kind(net.SLOWEST, net.FASTEST), "at: 100mbit", name="at")
    """Bits per second."""


class Reorder(OnLink):
    """All packets are delayed except some, which overtake the others."""

    does = "lets some packets overtake others; needs netem in the kernel"
    example = "reorder: node2 25% by 10ms"
    reorder: float = key_field(MISSING, share_kind(), "share: 25%", name="share")
    """The share of packets that overtake the others."""
    delay_s: float = key_field(0.01, kinds.duration_kind(net.LONGEST_DELAY_S), "by: 10ms", name="by")
    """The delay of the others."""


class Reset(OnLink):
    """Reset open TCP connections at both ends, and refuse new ones."""

    does = "resets TCP connections and refuses new ones"
    example = "reset: node2 - node0"
    harm = "loses"
    passes = True
    draws: ClassVar = {}

    @classmethod
    def targets(cls, chance: Chance) -> Sequence[Any]:
        """Return each pair of nodes."""
        return [Link(one, "-", other) for one, other in combinations(chance.nodes, 2)]

    def condition(self) -> Mapping[str, float]:
        """Return the condition of a link that resets connections."""
        return {"reset": 1.0}


def _node_or_all() -> kinds.Kind:
    """Return the kind of a node's name, or `all`."""
    name, allowed = kinds.node_kind(), f"the name of a node, such as node2, or {ALL}"

    def read(value: Value) -> str:
        return ALL if value.kind == "text" and kinds.read_text(value, allowed) == ALL else str(name.read(value))

    return kinds.Kind(allowed, read, {"type": "string", "pattern": f"^({ALL}|{kinds.NODE})$"})


class Dns(LinkFault):
    """The node refuses name lookups; a process keeps the names that it already knows."""

    does = "refuses name resolution on a node, or on all nodes"
    example = "dns: node2"
    strict_cannot = "a strict cluster does not support: its nodes know each other's names without a name server"

    node: str = key_field(MISSING, _node_or_all(), "dns: node2")
    """A node, or `all`."""

    def tables(self, addresses: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """Return the data for each node."""
        return tables_of([], addresses, nameless=list(addresses) if self.node == ALL else [self.node])


def _mapping(allowed: str, name: kinds.Kind, one: kinds.Kind) -> kinds.Kind:
    """Return the kind of mappings from names to values of other kinds, as pairs."""

    def read(value: Value) -> tuple[tuple[Any, Any], ...]:
        return tuple(value.mapping(allowed, lambda key, item: (name.read(key), one.read(item))).items())

    schema = {"type": "object", "additionalProperties": one.schema}
    return kinds.Kind(allowed, read, schema, lambda data: {str(left): one.dump(right) for left, right in data})


_LINKS = _mapping(
    f"a mapping: for each link ({net.LINK_ALLOWED}) its rate, delay, jitter, and loss",
    net.link_kind(),
    kinds.Kind("", lambda value: Condition(**read_keys(value, Condition)), mapping_schema(Condition), dump_keys),
)
_RACKS = _mapping(
    "a mapping: the nodes of each rack, such as {rack0: [node0, node1], rack1: [node2]}",
    kinds.text_kind("the name of a rack"),
    kinds.list_of(kinds.node_kind(), "a list of nodes"),
)


class Network(Condition, LinkFault):
    """The links of a run, from before its workers start to its end."""

    does = "changes all links, as the key `network:` does"
    example = "network: wan-40ms"
    main_key = "profile"

    profile: str | None = key_field(
        None, kinds.choice_kind(tuple(net.PROFILES)), "network: {profile: wan-40ms}", "none"
    )
    """A common network, by its name; the other keys change it."""
    racks: tuple[tuple[str, tuple[str, ...]], ...] = key_field(
        (), _RACKS, "network: {profile: datacenter, racks: {a: [node0, node1], b: [node2]}}", "two halves"
    )
    """The nodes of each rack, for the profile `datacenter`."""
    links: tuple[tuple[Link, Condition], ...] = key_field((), _LINKS, "network: {links: {node2: {loss: 1%}}}", "none")
    """Conditions of single links: `node2`, `node2 -> node0`, `node2 - node0`; the most specific one counts."""

    def __post_init__(self) -> None:
        """Refuse a contradiction.

        Raises:
            UsageError: The keys contradict each other.
        """
        if self.racks and self.profile != net.DATACENTER:
            raise UsageError("`racks` needs the profile datacenter; add `profile: datacenter`")
        if self.jitter_s and not self.delay_s and not self.profile:
            raise UsageError("`jitter` needs a delay; add `delay`")

    def tables(self, addresses: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """Return the data for each node."""
        return tables_of(self._layers(list(addresses)), addresses)

    def _layers(self, names: Sequence[str]) -> list[net.Layer]:
        """Return all conditions, the least specific first."""
        profile = {} if self.profile is None else condition_fields(net.PROFILES[self.profile])
        layers = [(Link(ALL), {**profile, **condition_fields(self)})]
        if self.profile == net.DATACENTER:
            middle = (len(names) + 1) // 2
            racks = [members for _, members in self.racks] or [tuple(names[:middle]), tuple(names[middle:])]
            rack = {name: number for number, members in enumerate(racks) for name in members}
            between = condition_fields(net.BETWEEN_RACKS)
            pairs = combinations(names, 2)
            layers += [(Link(one, "-", other), between) for one, other in pairs if rack.get(one) != rack.get(other)]
        own = [(where, condition_fields(condition)) for where, condition in self.links]
        return [*layers, *sorted(own, key=lambda one: one[0].exactness)]

    def __str__(self) -> str:
        """`network wan-40ms`."""
        data = type(self).value().dump(self)
        return f"network {data if isinstance(data, str) else _network_words(data)}"


def network_of(data: str | Mapping[str, Any]) -> Network:
    """Parse a network that does not come from a file, as a file would write it.

    Raises:
        ScenarioError: it is invalid; a line for each problem.
    """
    from lab.spec.document import read_value  # imports yaml

    return cast("Network", read_value(Network.value(), json.dumps(data), "network", "network"))


def _network_words(data: Mapping[str, Any]) -> str:
    """Return `rate 100mbit, node2 rate 10mbit`."""
    words = [f"{name} {value}" for name, value in data.items() if not isinstance(value, Mapping)]
    return ", ".join([*words, *(f"{where} {_network_words(how)}" for where, how in data.get("links", {}).items())])


def _partition() -> kinds.Kind:
    """Return the kind of partitions: a shape in words, or a mapping."""
    name = kinds.node_kind()
    names = kinds.list_of(name, "a list of nodes")

    def read(value: Value) -> str | dict[str, tuple[str, ...]]:
        if value.kind == "mapping":
            return {name.read(one): names.read(others) for one, others in value.pairs(PARTITION_ALLOWED)}
        try:
            return net.checked_partition(kinds.read_text(value, PARTITION_ALLOWED))
        except UsageError:
            raise value.refused(PARTITION_ALLOWED) from None

    def dump(data: str | Mapping[str, tuple[str, ...]]) -> Any:
        return data if isinstance(data, str) else {node: list(others) for node, others in data.items()}

    mapping = {"type": "object", "propertyNames": {"pattern": f"^{kinds.NODE}$"}, "additionalProperties": names.schema}
    text = {"type": "string", "pattern": f"^{net.PARTITION}$"}
    return kinds.Kind(PARTITION_ALLOWED, read, {"anyOf": [text, mapping]}, dump)


class Partition(LinkFault):
    """Nodes silently drop packets of others."""

    does = "silently drops packets between nodes: between sets, one way, or by a mapping"
    example = "partition: isolate node2"
    draws: ClassVar = {}

    shape: str | Mapping[str, tuple[str, ...]] = key_field(MISSING, _partition(), example, name="said")
    """Its shape, or each node with those whose packets it drops."""

    @classmethod
    def targets(cls, chance: Chance) -> Sequence[Any]:
        """Return each pair of nodes of which one drops the packets of the other, and each isolated node."""
        one_way = [f"one-way {one} -> {other}" for one, other in permutations(chance.nodes, 2)]
        return [*one_way, *(f"isolate {node}" for node in chance.nodes)] if one_way else []

    def tables(self, addresses: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """Return the data for each node."""
        drops = net.find_drops(self.shape, list(addresses))
        ways = [Link(sender, "->", node) for node, senders in drops.items() for sender in senders]
        return tables_of([(way, {"drop": 1.0}) for way in ways], addresses)

    def __str__(self) -> str:
        """`partition node0,node1 / node2`."""
        if isinstance(self.shape, str):
            return f"partition {self.shape}"
        return "partition " + "; ".join(f"{node} drops {', '.join(names)}" for node, names in self.shape.items())
