"""A partition of the network, as one kind of data: each node -> the nodes whose packets it drops. Pure.

Whatever its shape, that is all that there is to say of it: sets that cannot see each other, one node alone, packets
that go one way only, two halves with a bridge between them, a ring in which each sees its neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from lab.errors import UsageError
from lab.spec.kinds import NODE

Drops = dict[str, tuple[str, ...]]
"""By node: the nodes whose packets it drops."""
ALLOWED = (
    "sets that do not see each other (node0,node1 / node2), halves, isolate node2, one-way node2 -> node0, "
    "bridge node1, ring, or a mapping: each node, and the list of those whose packets it drops"
)
_SHAPES = rf"halves|ring|(?:isolate|bridge) +{NODE}|one-way +{NODE} *-> *{NODE}"
TEXT = rf" *(?:{_SHAPES}|{NODE}(?: *, *{NODE})*(?: */ *{NODE}(?: *, *{NODE})*)+) *"


def apart(sets: Sequence[Sequence[str]]) -> Drops:
    """Nodes of different sets do not see each other."""
    home = {node: place for place, names in enumerate(sets) for node in names}
    return {node: tuple(other for other in home if home[other] != home[node]) for node in home}


def halves(nodes: Sequence[str]) -> Drops:
    """The first half, the larger one where they are not alike, and the rest."""
    middle = (len(nodes) + 1) // 2
    return apart([nodes[:middle], nodes[middle:]])


def isolate(node: str, nodes: Sequence[str]) -> Drops:
    """One node sees nobody, and nobody sees it."""
    return apart([[node], [other for other in nodes if other != node]])


def one_way(sender: str, receiver: str) -> Drops:
    """What one sends does not arrive at the other; the way back is as it was."""
    return {receiver: (sender,)}


def bridge(node: str, nodes: Sequence[str]) -> Drops:
    """Two halves that do not see each other, and one node that sees both, and is seen by both."""
    return halves([other for other in nodes if other != node])


def ring(nodes: Sequence[str]) -> Drops:
    """Each node sees only the one before it and the one after it."""
    count = len(nodes)
    return {
        node: tuple(nodes[other] for other in range(count) if (other - place) % count not in (0, 1, count - 1))
        for place, node in enumerate(nodes)
    }


def named_in(text: str) -> tuple[str, ...]:
    """The nodes that a text names, in its order."""
    return tuple(dict.fromkeys(match[0] for match in re.finditer(rf"\b{NODE}\b", text)))


def checked(text: str) -> str:
    """A text that says a partition, with single spaces.

    Raises:
        UsageError: it says none.
    """
    named = re.findall(rf"\b{NODE}\b", text)
    if not re.fullmatch(TEXT, text) or len(named) != len(set(named)):
        raise UsageError(f"found {text[:60]!r}; allowed: {ALLOWED}")
    return re.sub(r" *, *", ",", re.sub(r" *(->|/) *", r" \1 ", " ".join(text.split())))


def drops(said: str | Mapping[str, Sequence[str]], nodes: Sequence[str]) -> Drops:
    """Whose packets each node drops, of a partition as it is said.

    Raises:
        UsageError: with these nodes that is no partition.
    """
    found = {node: tuple(names) for node, names in said.items()} if isinstance(said, Mapping) else _shape(said, nodes)
    if not any(found.values()):
        raise UsageError(f"with {len(nodes)} nodes, a partition {said} drops nothing")
    return {node: names for node, names in found.items() if names}


def _shape(text: str, nodes: Sequence[str]) -> Drops:
    word, names = text.split(maxsplit=1)[0], named_in(text)
    if word == "halves":
        return halves(nodes)
    if word == "ring":
        return ring(nodes)
    if word == "isolate":
        return isolate(names[0], nodes)
    if word == "bridge":
        return bridge(names[0], nodes)
    if word == "one-way":
        return one_way(*names)
    return apart([named_in(part) for part in text.split("/")])
