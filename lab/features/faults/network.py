"""What the network of a run is like: of the whole cluster, of single links, or a profile by name. Pure.

Where several say something of the same way, the more exact one is meant: one way before a pair, a pair before a node, a
node before all. Two nodes of one way each add what is theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from lab.features.faults.links import (
    ALL,
    LINK_ALLOWED,
    Condition,
    Link,
    Way,
    asked,
    link,
    tables,
)
from lab.features.faults.on_node.conditions import together
from lab.spec.declare import dump_keys, key, keys_of, read_keys
from lab.spec.kinds import Kind, choice, list_of, node, read_text
from lab.spec.reading import Reading, Value


@dataclass(frozen=True)
class Profile:
    """A network that many have."""

    what: str
    every: Condition
    """Of each cable, or of a pair within a rack."""
    between: Condition | None = None
    """Of a pair in different racks."""


PROFILES: Mapping[str, Profile] = {
    "lan-1g": Profile("a switch with 1 Gbit/s", Condition(rate_bits_per_s=1e9)),
    "lan-10g": Profile("a switch with 10 Gbit/s", Condition(rate_bits_per_s=10e9)),
    "lan-100g": Profile("a switch with 100 Gbit/s", Condition(rate_bits_per_s=100e9)),
    "lan-400g": Profile("a switch with 400 Gbit/s", Condition(rate_bits_per_s=400e9)),
    "wan-40ms": Profile(
        "two cities, 40 ms there and back", Condition(rate_bits_per_s=100e6, delay_s=0.02, jitter_s=0.001, loss=0.0001)
    ),
    "wifi": Profile(
        "a wireless network, 3 ms there and back", Condition(rate_bits_per_s=100e6, delay_s=0.0015, jitter_s=0.001)
    ),
    "datacenter": Profile(
        "racks: 10 Gbit/s within, 1 Gbit/s between", Condition(rate_bits_per_s=10e9), Condition(rate_bits_per_s=1e9)
    ),
}
"""By name; where the figures come from is in docs/network.md."""


def _one_link() -> Kind:
    names = ", ".join(keys_of(Condition))
    allowed = f"a mapping with the keys {names}"

    def read(value: Value) -> Condition:
        return Condition(**read_keys(value, Condition))

    properties = {name: dict(one.kind.schema) for name, one in keys_of(Condition).items()}
    return Kind(allowed, read, {"type": "object", "additionalProperties": False, "properties": properties}, dump_keys)


def _mapping(allowed: str, name: Kind, one: Kind) -> Kind:
    """A mapping from names of one kind to values of another."""

    def read(value: Value) -> tuple[tuple[Any, Any], ...]:
        found = []
        for named, said in value.pairs(allowed):
            with value.reading.attempt():
                found.append((name.read(named), one.read(said)))
        return tuple(found)

    schema = {"type": "object", "additionalProperties": one.schema}
    return Kind(allowed, read, schema, lambda data: {str(left): one.dump(right) for left, right in data})


_LINKS = _mapping(f"a mapping: for each link ({LINK_ALLOWED}) its rate, delay, jitter and loss", link(), _one_link())
_RACK = Kind("the name of a rack", lambda value: read_text(value, "the name of a rack"), {"type": "string"})
_RACKS = _mapping(
    "a mapping: the nodes of each rack, such as {rack0: [node0, node1], rack1: [node2]}",
    _RACK,
    list_of(node(), "a list of nodes"),
)


@dataclass(frozen=True, kw_only=True)
class Network(Condition):
    """What the links of a run are like, from before its workers start to its end."""

    profile: str | None = key(None, choice(tuple(PROFILES)), "network: {profile: wan-40ms}", "none")
    """A network that many have, by its name; what else is said comes on top of it."""
    racks: tuple[tuple[str, tuple[str, ...]], ...] = key(
        (), _RACKS, "network: {profile: datacenter, racks: {a: [node0, node1], b: [node2]}}", "two halves"
    )
    """Which nodes are in a rack together, for the profile `datacenter`."""
    links: tuple[tuple[Link, Condition], ...] = key((), _LINKS, "network: {links: {node2: {rate: 10mbit}}}", "none")
    """What single links are like: `node2`, `node2 -> node0`, `node2 - node0`; the more exact one is meant."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Those that it names."""
        named = [name for where, _ in self.links for name in where.nodes]
        return tuple(dict.fromkeys([*named, *(name for _, names in self.racks for name in names)]))

    def tables(self, addresses: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """What each node is told."""
        names = list(addresses)
        layers = self._layers(names)
        ways: dict[Way, dict[str, float]] = {}
        for sender in names:
            for receiver in names:
                if sender != receiver:
                    ways[sender, receiver] = _met(layers, (sender, receiver), names)
        cables: dict[str, float] = {}
        for where, said in layers:
            if said.get("rate_bits_per_s"):
                cables.update(dict.fromkeys(where.cables(names), said["rate_bits_per_s"]))
        return tables({way: met for way, met in ways.items() if met}, addresses, cables)

    def _layers(self, names: Sequence[str]) -> list[tuple[Link, dict[str, float]]]:
        """All that is said, the least exact first."""
        own = {one.name: getattr(self, one.name) for one in fields(Condition)}
        layers = [(Link(ALL), {name: value for name, value in own.items() if value is not None})]
        if self.profile is not None:
            profile = PROFILES[self.profile]
            layers.insert(0, (Link(ALL), asked(profile.every)))
            if profile.between is not None:
                layers += [(Link(*pair), asked(profile.between)) for pair in self._between(names)]
        return [
            *layers,
            *sorted(((where, asked(said)) for where, said in self.links), key=lambda one: one[0].exactness),
        ]

    def _between(self, names: Sequence[str]) -> list[tuple[str, str, str]]:
        middle = (len(names) + 1) // 2
        racks = [members for _, members in self.racks] or [tuple(names[:middle]), tuple(names[middle:])]
        home = {name: place for place, members in enumerate(racks) for name in members}
        return [
            (one, "-", other)
            for place, one in enumerate(names)
            for other in names[place + 1 :]
            if home.get(one) != home.get(other)
        ]


def _met(layers: Sequence[tuple[Link, Mapping[str, float]]], way: Way, names: Sequence[str]) -> dict[str, float]:
    """What packets on a way meet; a rate of a cable is not theirs alone, but holds for what comes to its node."""
    found: dict[str, float] = {}
    level: dict[str, float] = {}
    last = -1
    for where, said in layers:
        if way not in where.ways(names):
            continue
        mine = dict(said)
        if way[0] in where.cables(names):
            mine.pop("rate_bits_per_s", None)
        if where.exactness != last or where.one == ALL:
            found, level, last = {**found, **level}, {}, where.exactness
        level = together(level, mine)
    return {**found, **level}


def network() -> Kind:
    """A network, or the name of a profile."""
    names = keys_of(Network)
    allowed = f"a profile ({', '.join(PROFILES)}), or a mapping with the keys {', '.join(names)}"

    def read(value: Value) -> Network:
        if value.kind != "mapping":
            word = read_text(value, allowed, quotable=False)
            if word not in PROFILES:
                raise value.refused(allowed)
            return Network(profile=word)
        said = value.pairs(allowed)
        data = read_keys(value, Network)
        if not said:
            raise value.refused(allowed, " that says nothing")
        found = Network(**data)
        if found.racks and found.profile != "datacenter":
            raise value.problem("racks belong to the profile datacenter; write `profile: datacenter`")
        if found.jitter_s and not found.delay_s and not found.profile:
            raise value.problem("a jitter is a jitter of a delay; say `delay` too")
        return found

    properties = {name: dict(one.kind.schema) for name, one in names.items()}
    mapping = {"type": "object", "additionalProperties": False, "properties": properties, "minProperties": 1}
    return Kind(allowed, read, {"anyOf": [{"enum": [*PROFILES]}, mapping]}, dump_network)


def network_of(said: str | Mapping[str, Any]) -> Network:
    """A network that somebody says elsewhere than in a file, as a file would say it.

    Raises:
        ScenarioError: it is none; a line a problem.
    """
    import json
    from pathlib import Path

    import yaml

    reading = Reading(Path("network"))
    with reading.attempt():
        root: Any = yaml.compose(json.dumps(said))
        found: Network = network().read(Value(root, "network", reading))
    reading.raise_if_any()
    return found


def dump_network(data: Network) -> Any:
    """As a file would say it."""
    said = dump_keys(data)
    return said["profile"] if list(said) == ["profile"] else said
