"""Links between nodes that are far slower, or lose far more, than others: by what the kernels said of connections."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import combinations
from statistics import median

from lab.diagnosis.cut import outside_of_most
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding
from lab.node.messages.agent import Connections
from lab.words import format_bytes, format_duration, listing, name_link, name_ranks, plural

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
_MOST_LINKS = 4
Pair = tuple[str, str]


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
    sentence = (
        f"Round trips {_between(nodes, slow)} took up to {format_duration(took)}, "
        f"between others at most {format_duration(rest)}"
    )
    return [_finding(evidence, sentence, nodes, slow)]


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
    again = plural(sum(counts[pair] for pair in lossy), "segment")
    most = max(shares[pair] for pair in lossy)
    where = _between(nodes, lossy)
    sentence = f"{again} had to be sent again {where}, up to {most:.1%} of all, between others {best:.2%}"
    return [_finding(evidence, sentence, nodes, lossy)]


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
    sentence = (
        f"Data went {_between(nodes, narrow)} at {format_bytes(round(speed))}/s, though there was more to send, and it "
        f"was read at once; between others at {format_bytes(round(rest))}/s and more"
    )
    return [_finding(evidence, sentence, nodes, narrow)]


def _between(nodes: Collection[str], pairs: Collection[Pair]) -> str:
    """`between node2 and the others`, `between node0 and node1`."""
    off = outside_of_most(nodes, pairs)
    if off:
        return f"between {listing(off)} and the others"
    shown = listing(f"{one} and {other}" for one, other in list(pairs)[:_MOST_LINKS])
    return f"between {shown}"


def _finding(evidence: Evidence, sentence: str, nodes: Collection[str], pairs: Collection[Pair]) -> Finding:
    off = outside_of_most(nodes, pairs)
    ranks = tuple(rank.rank for rank in evidence.facts.ranks if rank.node in off)
    where = f"; {name_ranks(ranks)} ran there." if ranks else "."
    others = tuple(rank.rank for rank in evidence.facts.ranks if rank.rank not in ranks)
    link = name_link(*next(iter(pairs))) if len(pairs) == 1 and not off else ""
    return Finding(kind="slow_link", sentence=f"{sentence}{where}", ranks=ranks, others=others, link=link)
