"""Connections that broke between ranks of which neither had ended: told from what the first ranks to fail say.

A rank whose peer ends finds its connection closed, or reset. Where the peer had not raised anything by then, and later
failed for nothing but lost connections, it was the connection that broke.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lab.verdict.facts import RankFacts, RunFacts
from lab.verdict.finding import Finding
from lab.verdict.peers import gave_up, lost_a_peer
from lab.words import listing, name_ranks

_RESET = re.compile(r"\[(?P<address>[0-9a-fA-F.:]+)\]:\d+: Connection reset by peer")


def find_broken_link(facts: RunFacts, failed: Sequence[RankFacts]) -> Finding | None:
    """The connection that broke first, by itself; names a node where several of its connections did.

    Args:
        facts: of the run.
        failed: the ranks that failed, the earliest first.
    """
    alone = facts.lost_nodes or any(rank.left for rank in facts.ranks)
    if alone or not failed or not all(lost_a_peer(rank) and rank.raised for rank in failed):
        return None
    at = {rank.node: rank.raised for rank in reversed(failed)}
    broken = list[set[str]]()
    for rank in failed:
        met = _RESET.search(rank.error)
        peer = facts.network.addresses.get(met["address"], "") if met else ""
        told_later = peer not in at or (at[peer] or 0.0) > (rank.raised or 0.0)
        if not broken and (not peer or not told_later or gave_up(rank)):
            return None
        if peer and told_later and {rank.node, peer} not in broken:
            broken.append({rank.node, peer})
    common = set.intersection(*broken) if len(broken) > 1 else set[str]()
    links = listing(" and ".join(sorted(pair)) for pair in broken)
    sentence = f"the connection between {links} was reset while both were there: it broke by itself"
    if len(common) == 1:
        (node,) = common
        ranks = tuple(rank.rank for rank in facts.ranks if rank.node == node)
        others = listing(sorted(set().union(*broken) - common))
        sentence = (
            f"the connections of {node} to {others} were reset while all were there; {name_ranks(ranks)} ran there"
        )
        return Finding(kind="connection_reset", sentence=f"{sentence}.", ranks=ranks)
    return Finding(kind="connection_reset", sentence=f"{sentence}.", others=tuple(rank.rank for rank in failed[:1]))
