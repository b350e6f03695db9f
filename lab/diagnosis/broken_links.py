"""Connections that broke between ranks of which neither had ended: told from what the first ranks to fail say.

A rank whose peer ends finds its connection closed, or reset. Where the peer had not raised anything by then, and later
failed for nothing but lost connections, it was the connection that broke.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import RunFacts
from lab.diagnosis.finding import Finding
from lab.diagnosis.peers import gave_up, lost_a_peer
from lab.diagnosis.rank_facts import RankFacts
from lab.words import listing, name_link, name_ranks

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
    common = set.intersection(*broken) if len(broken) > 1 else set[str]()
    links = listing(" and ".join(sorted(pair)) for pair in broken)
    sentence = f"the connection between {links} was {how} while both were there: it broke by itself"
    if len(common) == 1:
        (node,) = common
        ranks = tuple(rank.rank for rank in facts.ranks if rank.node == node)
        others = listing(sorted(set().union(*broken) - common))
        sentence = (
            f"the connections of {node} to {others} were {how} while all were there; {name_ranks(ranks)} ran there"
        )
        return Finding(kind="connection_reset", sentence=f"{sentence}.", ranks=ranks)
    link = name_link(*broken[0]) if len(broken) == 1 else ""
    hit = tuple(rank.rank for rank in failed[:1])
    return Finding(kind="connection_reset", sentence=f"{sentence}.", others=hit, link=link)
