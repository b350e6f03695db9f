"""Kinds of faults that the links of nodes have: each node's agent is told its part, and asked what became of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar

from lab.engine.protocol import Need
from lab.errors import LabError, MachineLacks
from lab.features.faults.kind import FaultKind, Ground, Harm, ReadBack, key_of
from lab.features.faults.links import Broken, Link, link, link_at_start, on_link, tables
from lab.features.faults.on_node.conditions import LATE, NO_NETEM
from lab.spec import kinds
from lab.spec.declare import dump_keys, key, keys_of, read_keys
from lab.spec.reading import Value

_HINT = "load the module sch_netem, or take another kernel; rate, loss, duplicate, partition and reset need none"
DEED, PROBE = "links", "link_probe"


@dataclass(frozen=True, kw_only=True)
class LinkFault(FaultKind):
    """A kind that is done to links."""

    shown_as: ClassVar[tuple[str, ...]] = ("slow_link", "cut_off", "straggler", "late", "time_out", "connection_lost")
    harm: ClassVar[Harm] = "slows"
    needs: ClassVar[Need] = "links"

    @abstractmethod
    def tables(self, addresses: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """What each node is told, of nodes with these addresses."""

    def _told(self, ground: Ground) -> list[tuple[str, dict[str, Any]]]:
        parts = self.tables(ground.addresses)
        return [(node, {**said, "part": str(self)}) for node, said in parts.items() if ground.running(node)]

    def apply(self, ground: Ground) -> None:
        """Tell every node that runs; where one cannot, none does."""
        try:
            for node, said in self._told(ground):
                ground.ask(node, DEED, said)
        except LabError as error:
            self.undo(ground)
            why = f"{self} cannot be done: {error.message}"
            raise (MachineLacks(why, _HINT) if NO_NETEM in error.message else LabError(why)) from None

    def check(self, ground: Ground) -> None:
        """Whether the kernel of the nodes has what delays packets, where that is asked for: all are on one machine.

        Raises:
            MachineLacks: it has not.
        """
        told = self._told(ground)
        late = any(how.get(name) for _, said in told for how in said["to"].values() for name in LATE)
        if late and not ground.look_at(told[0][0], DEED, {"address": told[0][1]["address"]})["netem"]:
            raise MachineLacks(f"{self} cannot be done: {told[0][0]}: {NO_NETEM}", _HINT)

    def renew(self, ground: Ground, node: str) -> None:
        """Tell a node that has come back."""
        for name, said in self._told(ground):
            if name == node:
                ground.ask(node, DEED, said)

    def met(self, ground: Ground) -> Mapping[str, Any]:
        """What was dropped, lost, reset and sent twice."""
        return counted([ground.look_at(node, DEED, said) for node, said in self._told(ground)])

    def undo(self, ground: Ground) -> None:
        """Have every node that runs take it back."""
        for node, address in ground.addresses.items():
            if ground.running(node):
                ground.take_back(node, DEED, {"part": str(self), "address": address})

    def read_back(self, ground: Ground) -> ReadBack:
        """Whether it is in force on every node that runs, what it has met by now, and what packets meet."""
        told = self._told(ground)
        looks = [ground.look_at(node, DEED, said) for node, said in told]
        if not all(said["part"] in found["parts"] for (_, said), found in zip(told, looks, strict=True)):
            return ReadBack(in_force=False)
        return ReadBack(True, {**counted(looks), **self._measured(ground, told)})

    def _measured(self, ground: Ground, told: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
        """What packets of one node to one other meet, where a rate or a delay is asked for."""
        for node, said in told:
            for peer, how in said["to"].items():
                rate = min(filter(None, (how.get("rate_bits_per_s"), said.get("rate_bits_per_s"))), default=None)
                if rate is None and not how.get("delay_s"):
                    continue
                names = {address: name for name, address in ground.addresses.items()}
                found = ground.look_at(node, PROBE, {"address": said["address"], "peer": peer})
                aims = {"rate_bits_per_s": rate, "delay_s": how.get("delay_s")}
                wanted = {f"asked_{name}": aim for name, aim in aims.items() if aim}
                return {**wanted, **found, "measured": f"{node} -> {names[peer]}"}
        return {}


def counted(looks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What nodes have dropped, lost, reset and sent twice by now, all together."""
    totals: dict[str, int] = {}
    for found in looks:
        for name, met in found["met"].items():
            what = name.partition(" ")[0]
            totals[what] = totals.get(what, 0) + met["packets"]
    were_reset = sum(found.get("were_reset", 0) for found in looks)
    words = {"drop": "dropped", "loss": "lost", "reset": "reset", "duplicate": "doubled", "names": "unanswered"}
    packets = {f"{words[what]}_packets": count for what, count in totals.items() if what in words}
    return {**packets, **({"reset_connections": were_reset} if were_reset else {})}


@dataclass(frozen=True, kw_only=True)
class OnLink(LinkFault):
    """A kind whose value names a link, and says how much of something befalls it: `node2 50ms jitter 5ms`."""

    link: Link = key(MISSING, link(), "link: node2 -> node0")
    """Which links: a node, one way, both ways, or all."""

    @abstractmethod
    def condition(self) -> Broken:
        """The condition that the link is in."""

    @classmethod
    def value(cls) -> kinds.Kind:
        """Words in the order of its keys, or a mapping with them."""
        named = keys_of(cls)
        amounts = [one for one in named.values() if one.name != "link"]
        example = cls.example.partition(": ")[2]
        allowed = f"words such as {example!r}, or a mapping with the key{'s' if amounts else ''} {', '.join(named)}"
        required = [name for name, one in named.items() if one.default is MISSING]

        def read(value: Value) -> Any:
            if value.kind != "mapping":
                value = _as_mapping(value, [one.name for one in amounts], kinds.read_text(value, allowed), allowed)
            said = value.pairs(allowed)
            data = read_keys(value, cls)
            missing = [name for name in required if name not in {one.raw for one, _ in said}]
            if missing:
                raise value.problem(f"without {' and '.join(missing)}; allowed: {allowed}")
            if len(data) < len(said):  # what is wrong with one of its keys has been said, and counts once
                for name, one in said:
                    if name.raw in named:
                        named[name.raw].kind.read(one)
                raise value.refused(allowed)
            return cls(**data)

        properties = {name: dict(one.kind.schema) for name, one in named.items()}
        mapping = {"type": "object", "additionalProperties": False, "properties": properties, "required": required}
        return kinds.Kind(allowed, read, {"anyOf": [{"type": "string"}, mapping]}, dump_keys)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Those that its link names."""
        return self.link.nodes

    def tables(self, addresses: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """What each node is told."""
        ways, cables = on_link(self.link, self.condition(), list(addresses))
        return tables(ways, addresses, cables)

    def __str__(self) -> str:
        """`delay node2 50ms jitter 5ms`."""
        data = dump_keys(self)
        words = [
            data.pop("link"),
            *(f"{name if place else ''} {value}" for place, (name, value) in enumerate(data.items())),
        ]
        return " ".join([key_of(type(self)), *map(str.strip, words)])


def _as_mapping(value: Value, names: Sequence[str], text: str, allowed: str) -> Value:
    """The mapping that words mean: a link, the first amount, and pairs of a name and an amount."""
    from yaml.nodes import MappingNode, ScalarNode

    where, rest = link_at_start(text)
    words = rest.split()
    if not where or (words and not names) or (len(words) % 2 == 0 and words):
        raise value.refused(allowed)
    pairs = [("link", where), *([(names[0], words[0])] if words else []), *zip(words[1::2], words[2::2], strict=True)]
    mark = value.mark

    def scalar(word: str) -> ScalarNode:
        return ScalarNode("tag:yaml.org,2002:str", word, mark, mark)

    node = MappingNode("tag:yaml.org,2002:map", [(scalar(name), scalar(word)) for name, word in pairs], mark, mark)
    return Value(node, value.field, value.reading)
