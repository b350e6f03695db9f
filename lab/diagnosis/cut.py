"""Nodes that were cut off from others, by what the kernels said of the connections between them.

A node is named where most nodes still reach each other, and it reaches none of those. Where the network fell apart
without a majority, or only links between nodes that others reach are broken, the links are named, and no node.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations

from lab.diagnosis.network import Network
from lab.words import format_duration, listing, name_link

_MOST_LINKS = 4


@dataclass(frozen=True)
class Cut:
    """A break in the network between nodes."""

    what: str
    """As a clause."""
    nodes: tuple[str, ...] = ()
    """Who was cut off; empty where nobody can be named."""
    link: str = ""
    """The link that was broken, where there is only one, and nobody is named."""


def find_cut(network: Network, nodes: Collection[str]) -> Cut | None:
    """Where the network between these nodes was broken when the run was over; None where it was not."""
    broken = [(one, other) for one, other in combinations(sorted(nodes), 2) if network.lost(one, other)]
    if not broken or not network.stuck:
        return None
    parts = parts_of(nodes, broken)
    for_s = format_duration(max(network.silent_s(*pair) for pair in broken))
    if len(parts) == 1:
        shown = [f"{one} and {other}{_one_way(network, one, other)}" for one, other in broken]
        more = f" (and {len(shown) - _MOST_LINKS} more links)" if len(shown) > _MOST_LINKS else ""
        between = "; between ".join(shown[:_MOST_LINKS])
        what = f"nothing was acknowledged for at least {for_s} between {between}{more}"
        return Cut(what, link=name_link(*broken[0]) if len(broken) == 1 else "")
    off = outside_of_most(nodes, broken)
    if not off:
        sides = listing(listing(part) for part in parts) if len(parts[0]) == 1 else " | ".join(map(listing, parts))
        way = _one_way(network, *broken[0]) if len(broken) == 1 else ""
        what = f"the network was cut between {sides}{way}: nothing was acknowledged for at least {for_s}"
        return Cut(what, link=name_link(*broken[0]) if len(broken) == 1 else "")
    were = "was" if len(off) == 1 else "were"
    detail = _direction(network, off, parts[0], broken) or f"nothing was acknowledged for at least {for_s}"
    return Cut(f"{listing(off)} {were} cut off from {listing(parts[0])}: {detail}", off)


def parts_of(nodes: Collection[str], broken: Collection[Collection[str]]) -> list[tuple[str, ...]]:
    """Nodes that still reach each other, some through others, where some pairs do not; the most come first."""
    left, found, apart = set(nodes), list[tuple[str, ...]](), {frozenset(pair) for pair in broken}
    while left:
        part, new = set[str](), {min(left)}
        while new:
            part |= new
            new = {node for node in left - part if any(frozenset((node, other)) not in apart for other in new)}
        found.append(tuple(sorted(part)))
        left -= part
    return sorted(found, key=lambda part: (-len(part), part))


def outside_of_most(nodes: Collection[str], broken: Collection[Collection[str]]) -> tuple[str, ...]:
    """Nodes that reach none of the most that still reach each other; none where these are no majority."""
    first, *rest = parts_of(nodes, broken)
    return tuple(node for part in rest for node in part) if 2 * len(first) > len(nodes) else ()


def _one_way(network: Network, one: str, other: str) -> str:
    """Which of two directions still worked, where that is known, as an apposition."""
    for sender, receiver in ((one, other), (other, one)):
        if network.arrives(sender, receiver):
            return f" (what {sender} sent arrived, the answers of {receiver} did not)"
    return ""


def _direction(network: Network, off: Sequence[str], rest: Sequence[str], broken: Collection[tuple[str, str]]) -> str:
    """That only what one node sent, or only what was sent to it, was lost; empty where that is not known."""
    if len(off) != 1:
        return ""
    (node,) = off
    others = [other for other in rest if tuple(sorted((node, other))) in broken]
    if any(network.arrives(node, other) for other in others) and not any(network.arrives(o, node) for o in others):
        return "what it sent arrived, and nothing that was sent to it did"
    if any(network.arrives(other, node) for other in others) and not any(network.arrives(node, o) for o in others):
        return "what was sent to it arrived, and nothing that it sent did"
    return ""
