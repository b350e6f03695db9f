"""What came over ranks from outside: nodes paused or cut off, and connections that broke.

Engines report that of nodes, agents of workers, and kernels of the connections between nodes. A node is named where
most nodes still reach each other, and it reaches none of those. Where the network fell apart without a majority, or
only links between nodes that others reach are affected, the links are named, and no node.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations
from typing import Literal

from lab.diagnosis.errors import gave_up, lost_a_peer
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import Network, RankFacts, RunFacts
from lab.diagnosis.finding import ConnectionReset, Cut, Finding, FindingKind, Outside
from lab.record.result import Culprit
from lab.words import name_link

Pair = tuple[str, str]


def find_causes_outside(facts: RunFacts) -> list[Finding]:
    """Everything that still held ranks up when the run was over, and that none of them did."""
    outside = []
    for node, trouble in facts.troubled.items():
        ranks = tuple(rank.rank for rank in facts.ranks if rank.node == node and not rank.left)
        if ranks:
            disconnected = not trouble.silent
            outside.append(Outside(what="node", node=node, how=trouble.how, disconnected=disconnected, ranks=ranks))
    halted = [rank for rank in facts.ranks if rank.halted and not rank.left]
    outside += [Outside(what="rank", node=one.node, signal=one.halted, ranks=(one.rank,)) for one in halted]
    if outside or not facts.network.stuck:
        return [one.as_finding(FindingKind.OUTSIDE) for one in outside]
    nodes = {rank.rank: rank.node for rank in facts.ranks}
    cut = find_cut(facts.network, {*nodes.values()} - {lost.node for lost in facts.lost_nodes} - {""}, nodes)
    return [] if cut is None else [cut.as_finding(FindingKind.CUT_OFF)]


def cause_of(finding: Finding) -> str:
    """What sort of thing came over ranks, in the word that a culprit has for it."""
    facts = finding.facts
    if not isinstance(facts, Outside):
        return "cut_off"
    return "stopped" if facts.what == "rank" else "node_disconnected" if facts.disconnected else "node_paused"


def culprit_of(finding: Finding) -> Culprit | None:
    """Whom it came over first, in place of whose fault it was; or the link."""
    error, cause, facts = finding.headline, cause_of(finding), finding.facts
    if finding.link:
        return Culprit(link=finding.link, error=error, cause=cause)
    if not finding.ranks:
        return None
    node = facts.node if isinstance(facts, Outside) else facts.nodes[0] if isinstance(facts, Cut) else ""
    return Culprit(rank=finding.ranks[0], node=node, error=error, cause=cause)


# -- nodes that were cut off from others when the run was over


def find_cut(network: Network, nodes: Collection[str], ranks: Mapping[int, str] | None = None) -> Cut | None:
    """Where the network between these nodes was broken when the run was over; None where it was not."""
    broken = [(one, other) for one, other in combinations(sorted(nodes), 2) if network.lost(one, other)]
    if not broken or not network.stuck:
        return None

    def arriving(pair: Pair) -> Pair | None:
        """From whom to whom data still arrived, of two directions, where that is known."""
        return next((way for way in (pair, pair[::-1]) if network.arrives(*way)), None)

    parts = parts_of(nodes, broken)
    off = () if len(parts) == 1 else outside_of_most(nodes, broken)
    how: Literal["links", "halves", "nodes"] = "links" if len(parts) == 1 else "nodes" if off else "halves"
    return Cut(
        how=how,
        nodes=off,
        parts=tuple(parts),
        links=tuple(broken),
        one_way=() if off else tuple(map(arriving, broken)),
        direction=_direction(network, off, parts[0], broken) if off else "",
        link=name_link(*broken[0]) if len(broken) == 1 and not off else "",
        ranks=tuple(rank for rank, node in (ranks or {}).items() if node in off),
        seconds=max(network.silent_s(*pair) for pair in broken),
    )


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


def _direction(
    network: Network, off: Sequence[str], rest: Sequence[str], broken: Collection[Pair]
) -> Literal["", "sent", "received"]:
    """Whether only what one node sent, or only what was sent to it, still arrived; empty where that is not known."""
    if len(off) != 1:
        return ""
    (node,) = off
    others = [other for other in rest if tuple(sorted((node, other))) in broken]
    sent = any(network.arrives(node, other) for other in others)
    came = any(network.arrives(other, node) for other in others)
    return "" if sent == came else "sent" if sent else "received"


# -- connections that broke by themselves: told from what the first ranks to fail say
#
# A rank whose peer ends finds its connection closed, or reset. Where the peer had not raised anything by then, and
# later failed for nothing but lost connections, it was the connection that broke.


_RESET = re.compile(
    r"\[(?P<address>[0-9a-fA-F.:]+)\]:\d+: (?:Connection reset by peer|Software caused connection abort)"
)
_REFUSED = re.compile(r"SO_ERROR: Connection refused, remote=\[(?P<address>[0-9a-fA-F.:]+)\]:\d+")
"""A peer listens before it says where: nobody there is one that has ended, or a connection that does not come about."""
_CLOSED = re.compile(r"Connection closed by peer \[(?P<address>[0-9a-fA-F.:]+)\]:\d+")
_STORE = re.compile(r"DistNetworkError: .*(?:Connection reset by peer|Software caused connection abort)")
Together = Callable[[int, str], bool]


def find_broken_link(evidence: Evidence) -> Finding | None:
    """The connection that broke first, by itself; names a node where several of its connections did."""

    def together(rank: int, node: str) -> bool:
        hit = evidence.broken(rank) if evidence.at_hand else None
        peers = [one.rank for one in evidence.facts.ranks if one.node == node]
        return hit is not None and any(one in hit[1].calls and hit[1].calls[one].state != "completed" for one in peers)

    failed = [rank for rank in evidence.facts.ranks if rank.failed]
    address = evidence.record.plan().master_addr if any(_STORE.search(rank.error) for rank in failed) else ""
    store = evidence.facts.network.addresses.get(address, address)
    return broken_link(evidence.facts, sorted(failed, key=lambda rank: rank.raised or 0.0), together, store)


def broken_link(facts: RunFacts, failed: Sequence[RankFacts], together: Together, store: str = "") -> Finding | None:
    """The same, of the ranks that failed, the earliest first.

    Args:
        facts: of the run.
        failed: those ranks.
        together: whether a rank of that node was in the call in which the connection of a rank to it was closed, and
            never came out of it: then it did not close it because it was done.
        store: the node of the rendezvous' store; empty where no connection to it was lost.
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
        told_later = peer not in at or (at[peer] or 0.0) > (rank.raised or 0.0)
        if closed and told_later:
            told_later = together(rank.rank, peer) and not any(gave_up(one) for one in failed if one.node == peer)
        if not broken and (not peer or peer in left or not told_later or (gave_up(rank) and not refused)):
            return None
        if peer and told_later and {rank.node, peer} not in broken:
            how = how or ("refused" if refused else "reset")
            broken.append({rank.node, peer})
    common = sorted(set.intersection(*broken)) if len(broken) > 1 else []
    node = common[0] if len(common) == 1 else ""
    reset = ConnectionReset(
        links=tuple((one, other) for one, other in map(sorted, broken)),
        refused=how == "refused",
        node=node,
        ranks=tuple(rank.rank for rank in facts.ranks if rank.node == node) if node else (),
        others=() if node else tuple(rank.rank for rank in failed[:1]),
        link=name_link(*broken[0]) if len(broken) == 1 else "",
    )
    return reset.as_finding(FindingKind.CONNECTION_RESET)
