"""What came over ranks from outside: nodes paused or cut off, connections that broke, failed for a while, or are slow.

Engines report that of nodes, agents of workers, and kernels of the connections between nodes. A node is named where
most nodes still reach each other, and it reaches none of those. Where the network fell apart without a majority, or
only links between nodes that others reach are affected, the links are named, and no node.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations
from statistics import median
from typing import Literal, NamedTuple

from lab.diagnosis.errors import gave_up, lost_a_peer
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import RankFacts, RunFacts
from lab.diagnosis.finding import ConnectionReset, Cut, Finding, FindingKind, Flap, Outside, SlowLink
from lab.diagnosis.network import Network
from lab.node.messages.agent import BLINK_S, Connections
from lab.record.result import Culprit
from lab.trace.steps import Step
from lab.words import name_link

Pair = tuple[str, str]


def blows(facts: RunFacts) -> list[Finding]:
    """Everything that still held ranks up when the run was over, and that none of them did."""
    found = []
    for node, trouble in facts.troubled.items():
        ranks = tuple(rank.rank for rank in facts.ranks if rank.node == node and not rank.left)
        if ranks:
            told = Outside(what="node", node=node, how=trouble.how, disconnected=not trouble.silent, ranks=ranks)
            found.append(Finding(kind=FindingKind.OUTSIDE, facts=told))
    for rank in facts.ranks:
        if rank.halted and not rank.left:
            told = Outside(what="rank", node=rank.node, signal=rank.halted, ranks=(rank.rank,))
            found.append(Finding(kind=FindingKind.OUTSIDE, facts=told))
    return found or _cut_off(facts)


def _cut_off(facts: RunFacts) -> list[Finding]:
    """A break in the network between nodes that were there."""
    gone = {lost.node for lost in facts.lost_nodes}
    ranks = {rank.rank: rank.node for rank in facts.ranks}
    cut = find_cut(facts.network, {*ranks.values()} - gone - {""}, ranks) if facts.network.stuck else None
    return [] if cut is None else [Finding(kind=FindingKind.CUT_OFF, facts=cut)]


def cause_of(blow: Finding) -> str:
    """What sort of thing came over ranks, in the word that a culprit has for it."""
    facts = blow.facts
    if not isinstance(facts, Outside):
        return "cut_off"
    return "stopped" if facts.what == "rank" else "node_disconnected" if facts.disconnected else "node_paused"


def culprit_of(blow: Finding) -> Culprit | None:
    """Whom it came over first, in place of whose fault it was; or the link."""
    if blow.link:
        return Culprit(link=blow.link, error=blow.headline, cause=cause_of(blow))
    if not blow.ranks:
        return None
    told = blow.facts
    node = told.node if isinstance(told, Outside) else told.nodes[0] if isinstance(told, Cut) else ""
    return Culprit(rank=blow.ranks[0], node=node, error=blow.headline, cause=cause_of(blow))


# -- nodes that were cut off from others when the run was over


def find_cut(network: Network, nodes: Collection[str], ranks: Mapping[int, str] | None = None) -> Cut | None:
    """Where the network between these nodes was broken when the run was over; None where it was not."""
    broken = [(one, other) for one, other in combinations(sorted(nodes), 2) if network.lost(one, other)]
    if not broken or not network.stuck:
        return None
    parts = parts_of(nodes, broken)
    off = () if len(parts) == 1 else outside_of_most(nodes, broken)
    how: Literal["links", "halves", "nodes"] = "links" if len(parts) == 1 else "nodes" if off else "halves"
    return Cut(
        how=how,
        nodes=off,
        parts=tuple(parts),
        links=tuple(broken),
        one_way=() if off else tuple(_one_way(network, *pair) for pair in broken),
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


def _one_way(network: Network, one: str, other: str) -> Pair | None:
    """From whom to whom data still arrived, of two directions, where that is known."""
    ways = ((one, other), (other, one))
    return next((way for way in ways if network.arrives(*way)), None)


def _direction(
    network: Network, off: Sequence[str], rest: Sequence[str], broken: Collection[Pair]
) -> Literal["", "sent", "received"]:
    """Whether only what one node sent, or only what was sent to it, still arrived; empty where that is not known."""
    if len(off) != 1:
        return ""
    (node,) = off
    others = [other for other in rest if tuple(sorted((node, other))) in broken]
    if any(network.arrives(node, other) for other in others) and not any(network.arrives(o, node) for o in others):
        return "sent"
    if any(network.arrives(other, node) for other in others) and not any(network.arrives(node, o) for o in others):
        return "received"
    return ""


# -- nodes that were cut off for a while and reached the others again


_TOGETHER_S = 0.5
"""Silences that lie no farther apart are one: an agent looks so often."""


class _Silence(NamedTuple):
    """Nothing was acknowledged between two nodes; times are seconds of the trace."""

    begin: float
    end: float
    """When that was known."""
    pair: frozenset[str]


def find_flaps(evidence: Evidence) -> list[Finding]:
    """What was not acknowledged between nodes for a while, and then came through.

    A node is named where there are several such links and it is at an end of all of them; of one link neither end.
    """
    found = [(one, step) for one, later in _silences(evidence) for step in [_meanwhile(evidence, one)] if later or step]
    if not found:
        return []
    silences = [one for one, _ in found]
    pairs = sorted({one.pair for one in silences}, key=sorted)
    common = frozenset.intersection(*pairs) if len(pairs) > 1 else frozenset()
    step = max((step for _, step in found if step), key=_seconds, default=None)
    bursts, ranks = _bursts(silences), tuple(rank.rank for rank in evidence.facts.ranks if rank.node in common)
    facts = Flap(
        links=tuple((one, other) for one, other in map(sorted, pairs)),
        nodes=tuple(common),
        bursts_s=tuple(bursts),
        step_s=_seconds(step) if step is not None else None,
        ranks=ranks,
        others=tuple(rank.rank for rank in evidence.facts.ranks if rank.rank not in ranks),
        link=name_link(*pairs[0]) if len(pairs) == 1 else "",
        step=step.title if step is not None else "",
        lines=tuple(call.source for call in step.calls.values()) if step is not None else (),
        seconds=round(max(bursts), 6),
    )
    return [Finding(kind=FindingKind.CUT_OFF, facts=facts)]


def _silences(evidence: Evidence) -> list[tuple[_Silence, bool]]:
    """All of them, and whether more was acknowledged later."""
    ways: dict[tuple[str, str], list[Connections]] = defaultdict(list)
    for fact in evidence.record.events():
        if isinstance(fact, Connections) and fact.number:
            ways[fact.node, fact.peer].append(fact)
    found = []
    for way, told in ways.items():
        most = max(one.acknowledged_bytes for one in told)
        silent = [one for one in told if one.silent_s >= BLINK_S]
        times = [(one.time - evidence.trace.origin, one) for one in silent]
        found += [
            (_Silence(time - one.silent_s, time, frozenset(way)), one.acknowledged_bytes < most) for time, one in times
        ]
    return sorted(found, key=lambda one: one[0][:2])


def _meanwhile(evidence: Evidence, silence: _Silence) -> Step | None:
    """Of the steps of ranks on both nodes that were under way then and came to their end later, the longest."""
    node_of = {rank.rank: rank.node for rank in evidence.facts.ranks}
    ended = [step for step in evidence.steps if step.end is not None and step.begin < silence.end < step.end]
    between = [step for step in ended if silence.pair <= {node_of.get(rank) for rank in step.calls}]
    return max(between, key=_seconds, default=None)


def _seconds(step: Step) -> float:
    return (step.end or 0.0) - step.begin


def _bursts(silences: Sequence[_Silence]) -> list[float]:
    """How long each lasted at least, seconds; those that overlap, or nearly do, are one."""
    bursts: list[list[_Silence]] = []
    for one in silences:
        if bursts and one.begin <= max(before.end for before in bursts[-1]) + _TOGETHER_S:
            bursts[-1].append(one)
        else:
            bursts.append([one])
    return [max(one.end - one.begin for one in burst) for burst in bursts]


# -- links that are far slower, or lose far more, than others


_LEAST_S = 0.01
"""Round trips that take less are no worry,"""
_TIMES = 10
"""nor such as take less than so many times those of the fastest link."""
_APART = 3
"""And every slow one has to take so many times as long as every other."""
_LEAST_REPORTS = 2
_LEAST_SEGMENTS = 500
"""A link has to have carried so many before it says something that some of them were lost,"""
_LEAST_SHARE = 0.005
"""at least this share of them, and at least so many times the share of the best link."""
_LEAST_BYTES = 50_000
"""A connection has to have carried so many between two reports before that says how fast its link is;"""
_LEAST_BUSY_S = 0.25
"""and it is full where it was at it for so long,"""
_LEAST_ON_ITS_WAY = 16_000
"""so many bytes were on their way in the end,"""
_MOST_UNREAD = 0.2
"""and at most this part of the time it waited for its reader."""
_CLOCK_S = 0.001
"""The kernel counts that time by its ticks."""


def find_slow_links(evidence: Evidence) -> list[Finding]:
    """Links with long round trips, or else such as lose much; names the node whose links are such, and no others."""
    reports: dict[Pair, list[Connections]] = defaultdict(list)
    for fact in evidence.record.events():
        if isinstance(fact, Connections) and fact.number and not fact.stuck:
            reports[min(fact.node, fact.peer), max(fact.node, fact.peer)].append(fact)
    nodes = sorted({node for pair in reports for node in pair})
    if len(nodes) < 3 or set(reports) != set(combinations(nodes, 2)):
        return []
    return _slow(evidence, reports, nodes) or _lossy(evidence, reports, nodes) or _narrow(evidence, reports, nodes)


def _slow(evidence: Evidence, reports: Mapping[Pair, list[Connections]], nodes: list[str]) -> list[Finding]:
    trips: dict[Pair, float] = {}
    for pair, told in reports.items():
        ways = [[one.round_trip_s for one in told if one.node == node and one.round_trip_s] for node in pair]
        if not all(len(way) >= _LEAST_REPORTS for way in ways):
            return []
        trips[pair] = max(map(median, ways))
    fastest = min(trips.values())
    slow = [pair for pair, seconds in trips.items() if seconds >= max(_LEAST_S, _TIMES * fastest)]
    rest = max(seconds for pair, seconds in trips.items() if pair not in slow)
    if not slow or min(trips[pair] for pair in slow) < _APART * rest:
        return []
    took = max(trips[pair] for pair in slow)
    return [_slow_link(evidence, nodes, slow, "round_trip_s", took, rest)]


def _lossy(evidence: Evidence, reports: Mapping[Pair, list[Connections]], nodes: list[str]) -> list[Finding]:
    shares: dict[Pair, float] = {}
    counts: dict[Pair, int] = {}
    for pair, told in reports.items():
        last = [max((one for one in told if one.node == node), key=lambda one: one.time, default=None) for node in pair]
        sent = sum(one.segments_out for one in last if one is not None)
        if sent < _LEAST_SEGMENTS:
            continue
        counts[pair] = sum(one.sent_again for one in last if one is not None)
        shares[pair] = counts[pair] / sent
    best = min(shares.values(), default=0.0)
    lossy = [pair for pair, share in shares.items() if share >= max(_LEAST_SHARE, _TIMES * best)]
    if not lossy or len(lossy) == len(shares):
        return []
    again, most = sum(counts[pair] for pair in lossy), max(shares[pair] for pair in lossy)
    return [_slow_link(evidence, nodes, lossy, "lost_share", most, best, again)]


def _narrow(evidence: Evidence, reports: Mapping[Pair, list[Connections]], nodes: list[str]) -> list[Finding]:
    """Links that were full at a rate that is far below that of others: neither the sender nor the reader was late."""
    full: dict[Pair, float] = {}
    fast: dict[Pair, float] = {}
    for pair, told in reports.items():
        for node in pair:
            before = Connections(0.0)
            for one in (one for one in told if one.node == node):
                carried, busy_s = one.most_bytes - before.most_bytes, one.busy_s - before.busy_s
                unread_s, before = one.reader_late_s - before.reader_late_s, one
                if carried < _LEAST_BYTES or busy_s < 0:
                    continue
                speed = carried / max(busy_s, _CLOCK_S)
                fast[pair] = max(fast.get(pair, 0.0), speed)
                on_its_way = one.unacknowledged_bytes >= _LEAST_ON_ITS_WAY
                if busy_s >= _LEAST_BUSY_S and on_its_way and unread_s <= _MOST_UNREAD * busy_s:
                    full[pair] = min(full.get(pair, speed), speed)
    fastest = max((speed for pair, speed in fast.items() if pair not in full), default=0.0)
    narrow = [pair for pair, speed in full.items() if speed * _TIMES <= fastest]
    rest = min((speed for pair, speed in fast.items() if pair not in narrow), default=0.0)
    if not narrow or rest < _APART * max(full[pair] for pair in narrow):
        return []
    speed = min(full[pair] for pair in narrow)
    return [_slow_link(evidence, nodes, narrow, "bytes_per_s", speed, rest)]


def _slow_link(
    evidence: Evidence,
    nodes: Collection[str],
    pairs: Sequence[Pair],
    measure: Literal["round_trip_s", "lost_share", "bytes_per_s"],
    worst: float,
    rest: float,
    segments: int = 0,
) -> Finding:
    off = outside_of_most(nodes, pairs)
    ranks = tuple(rank.rank for rank in evidence.facts.ranks if rank.node in off)
    facts = SlowLink(
        measure=measure,
        worst=worst,
        rest=rest,
        segments=segments,
        links=tuple(pairs),
        nodes=off,
        ranks=ranks,
        others=tuple(rank.rank for rank in evidence.facts.ranks if rank.rank not in ranks),
        link=name_link(*pairs[0]) if len(pairs) == 1 and not off else "",
    )
    return Finding(kind=FindingKind.SLOW_LINK, facts=facts)


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
    facts_told = ConnectionReset(
        links=tuple((one, other) for one, other in map(sorted, broken)),
        refused=how == "refused",
        node=node,
        ranks=tuple(rank.rank for rank in facts.ranks if rank.node == node) if node else (),
        others=() if node else tuple(rank.rank for rank in failed[:1]),
        link=name_link(*broken[0]) if len(broken) == 1 else "",
    )
    return Finding(kind=FindingKind.CONNECTION_RESET, facts=facts_told)
