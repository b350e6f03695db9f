"""Find connections between nodes that were broken at the end of a run, or that broke without a known cause.

The finding names a node if most nodes still reach each other and it reaches none of them. Otherwise it names the links:
the network split without a majority, or only links between reachable nodes failed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Literal

from lab.diagnosis.errors import has_timed_out, lost_a_peer
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import Network, RankFacts, RunFacts
from lab.diagnosis.finding import Finding, FindingKind, Kind, Words
from lab.diagnosis.links import connected_parts, outside_of_most
from lab.diagnosis.wording import ran_there
from lab.words import format_duration, join_words, name_link, name_ranks

MOST_LINKS = 4
Pair = tuple[str, str]


class Cut(Finding):
    """A break in the network between nodes at the end of the run."""

    kind: Kind = FindingKind.CUT_OFF
    how: Literal["links", "halves", "nodes"]
    nodes: tuple[str, ...] = ()
    """Nodes that were cut off; empty if none can be named."""
    parts: tuple[tuple[str, ...], ...] = ()
    """Nodes that still reached each other; the largest part first."""
    links: tuple[tuple[str, str], ...] = ()
    one_way: tuple[tuple[str, str] | None, ...] = ()
    """For each link: the direction in which data still arrived, if known."""
    direction: Literal["", "sent", "received"] = ""
    """For a single node: the direction that still worked, data that it sent or data for it."""

    def render(self) -> Words:
        """Say between which nodes nothing was acknowledged."""
        silent = f"nothing was acknowledged for at least {format_duration(self.seconds)}"
        arrived = " (packets from {0} arrived, but replies from {1} did not)"
        ways = [arrived.format(*way) if way else "" for way in self.one_way]
        if self.how == "links":
            shown = [f"{pair}{way}" for pair, way in zip(describe_pairs(self.links), ways, strict=True)]
            extra = f" (and {len(shown) - MOST_LINKS} more links)" if len(shown) > MOST_LINKS else ""
            what = f"{silent} between {'; between '.join(shown[:MOST_LINKS])}{extra}"
        elif self.how == "halves":
            parts = [join_words(part) for part in self.parts]
            sides = join_words(parts) if len(self.parts[0]) == 1 else " | ".join(parts)
            what = f"the network was cut between {sides}{ways[0] if len(ways) == 1 else ''}: {silent}"
        else:
            detail = {
                "": silent,
                "sent": "its data arrived at the others, but their data did not arrive at it",
                "received": "their data arrived at it, but its data did not arrive at the others",
            }[self.direction]
            were = "was" if len(self.nodes) == 1 else "were"
            what = f"{join_words(self.nodes)} {were} cut off from {join_words(self.parts[0])}: {detail}"
        return f"{what}{ran_there(self.ranks)}"


class ConnectionReset(Finding):
    """Connections that broke without a known cause."""

    kind: Kind = FindingKind.CONNECTION_RESET
    links: tuple[tuple[str, str], ...]
    refused: bool = False
    node: str = ""
    """The node at one end of all of them, if there are several."""

    def render(self) -> Words:
        """Say between which nodes a connection broke."""
        how = "refused" if self.refused else "reset"
        if not self.node:
            pairs = join_words(describe_pairs(self.links))
            return f"the connection between {pairs} was {how} although both nodes were up: the network broke it"
        others = join_words(sorted({node for pair in self.links for node in pair} - {self.node}))
        there = f"{name_ranks(self.ranks)} ran there"
        return f"the connections of {self.node} to {others} were {how} although all nodes were up; {there}"


# -- nodes that were cut off from others at the end of the run


def find_cut_nodes(evidence: Evidence) -> list[Finding]:
    """Return the break in the network at the end of the run, and the nodes that it cut off."""
    facts = evidence.facts
    nodes = {rank.rank: rank.node for rank in facts.ranks}
    cut = find_cut(facts.network, {*nodes.values()} - {lost.node for lost in facts.lost_nodes} - {""}, nodes)
    return [] if cut is None else [cut]


def find_cut(network: Network, nodes: Collection[str], ranks: Mapping[int, str] | None = None) -> Cut | None:
    """Return the break in the network between nodes at the end of the run; None if there was none."""
    broken = [(one, other) for one, other in combinations(sorted(nodes), 2) if network.lost(one, other)]
    if not broken or not network.stuck:
        return None
    parts = connected_parts(nodes, broken)
    off = () if len(parts) == 1 else outside_of_most(nodes, broken)
    # The direction in which data still arrived, if known.
    arriving = [next((way for way in (pair, pair[::-1]) if network.arrives(*way)), None) for pair in broken]
    return Cut(
        how="links" if len(parts) == 1 else "nodes" if off else "halves",
        nodes=off,
        parts=tuple(parts),
        links=tuple(broken),
        one_way=() if off else tuple(arriving),
        direction=_direction(network, off[0], parts[0], broken) if len(off) == 1 else "",
        link=name_link(*broken[0]) if len(broken) == 1 and not off else "",
        ranks=tuple(rank for rank, node in (ranks or {}).items() if node in off),
        seconds=max(network.silent_s(*pair) for pair in broken),
    )


def _direction(
    network: Network, node: str, rest: Sequence[str], broken: Collection[Pair]
) -> Literal["", "sent", "received"]:
    """Return whether only data from a node, or only data to it, still arrived; empty if unknown."""
    others = [other for other in rest if tuple(sorted((node, other))) in broken]
    sent = any(network.arrives(node, other) for other in others)
    came = any(network.arrives(other, node) for other in others)
    return "" if sent == came else "sent" if sent else "received"


# -- connections that broke without a known cause, according to the errors of the first ranks to fail
#
# When a peer ends, a rank's connection to it is closed or reset. If the peer had raised nothing by then, and later
# failed only because of lost connections, then the connection itself broke.


_RESET = re.compile(
    r"\[(?P<address>[0-9a-fA-F.:]+)\]:\d+: (?:Connection reset by peer|Software caused connection abort)"
)
_REFUSED = re.compile(r"SO_ERROR: Connection refused, remote=\[(?P<address>[0-9a-fA-F.:]+)\]:\d+")
"""A peer listens before it publishes its address. So a refusal means that it ended, or that the connection failed."""
_CLOSED = re.compile(r"Connection closed by peer \[(?P<address>[0-9a-fA-F.:]+)\]:\d+")
_STORE = re.compile(r"DistNetworkError: .*(?:Connection reset by peer|Software caused connection abort)")
Together = Callable[[int, str], bool]


def find_broken_links(evidence: Evidence) -> list[Finding]:
    """Return the connection that broke first, without a known cause; names a node if several of its connections did."""

    def together(rank: int, node: str) -> bool:
        hit = evidence.broken_call(rank) if evidence.has_readable_trace else None
        peers = [one.rank for one in evidence.facts.ranks if one.node == node]
        return hit is not None and any(one in hit[1].calls and hit[1].calls[one].state != "completed" for one in peers)

    failed = [rank for rank in evidence.facts.ranks if rank.failed]
    address = evidence.record.plan().master_addr if any(_STORE.search(rank.error) for rank in failed) else ""
    store = evidence.facts.network.addresses.get(address, address)
    broken = broken_link(evidence.facts, sorted(failed, key=lambda rank: rank.raised or 0.0), together, store)
    return [] if broken is None else [broken]


def broken_link(facts: RunFacts, failed: Sequence[RankFacts], together: Together, store: str = "") -> Finding | None:
    """Return a finding on the connection that broke first among ranks that failed.

    Args:
        facts: Facts of the run.
        failed: Ranks that failed, the earliest first.
        together: Returns whether a rank of a node was in the call in which another rank's connection to it was closed,
            and never completed it. Then it did not close the connection because it was done.
        store: Node of the rendezvous store; empty if no connection to it was lost.
    """
    if facts.lost_nodes or not failed or not all(lost_a_peer(rank) and rank.raised for rank in failed):
        return None
    left = {rank.node for rank in facts.ranks if rank.left}
    at = {rank.node: rank.raised for rank in reversed(failed)}
    broken, how = list[set[str]](), ""
    for rank in failed:
        refused = _REFUSED.search(rank.error)
        met = _RESET.search(rank.error) or refused
        closed = None if met else _CLOSED.search(rank.error)
        met = met or closed
        peer = facts.network.addresses.get(met["address"], "") if met else ""
        peer = store if store != rank.node and _STORE.search(rank.error) else peer
        peer = "" if peer == rank.node else peer
        failed_later = peer not in at or (at[peer] or 0.0) > (rank.raised or 0.0)
        if closed and failed_later:
            failed_later = together(rank.rank, peer) and not any(has_timed_out(it) for it in failed if it.node == peer)
        if not broken and (not peer or peer in left or not failed_later or (has_timed_out(rank) and not refused)):
            return None
        if peer and failed_later and {rank.node, peer} not in broken:
            how = how or ("refused" if refused else "reset")
            broken.append({rank.node, peer})
    common = sorted(set.intersection(*broken)) if len(broken) > 1 else []
    node = common[0] if len(common) == 1 else ""
    return ConnectionReset(
        links=tuple((one, other) for one, other in map(sorted, broken)),
        refused=how == "refused",
        node=node,
        ranks=tuple(rank.rank for rank in facts.ranks if rank.node == node) if node else (),
        others=() if node else tuple(rank.rank for rank in failed[:1]),
        link=name_link(*broken[0]) if len(broken) == 1 else "",
    )


# -- in words


def describe_pairs(links: Iterable[tuple[str, str]]) -> list[str]:
    """Return `node0 and node1`, for each link."""
    return [f"{one} and {other}" for one, other in links]
