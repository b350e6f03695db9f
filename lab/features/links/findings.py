"""Find problems of links between nodes during a run, and connections that were broken at its end.

During a run: silences, long round trips, losses, and low rates. For a broken connection, the finding names a node if
most nodes still reach each other and it reaches none of them. Otherwise it names the links: the network split without
a majority, or only links between reachable nodes failed.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from statistics import median
from typing import Any, Literal, NamedTuple

from lab.diagnosis.ends import connected_parts, outside_of_most
from lab.diagnosis.errors import has_timed_out, lost_a_peer
from lab.diagnosis.evidence import Evidence, Explained
from lab.diagnosis.facts import Network, RankFacts, RunFacts
from lab.diagnosis.finding import Finding, FindingKind, Kind, Words
from lab.diagnosis.wording import ran_there
from lab.node.messages.agent import BLINK_S, Connections
from lab.trace.steps import Step
from lab.words import format_bytes, format_count, format_duration, group_pairs, join_words, name_link, name_ranks

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
    return "" if sent == any(network.arrives(other, node) for other in others) else "sent" if sent else "received"


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
        hit = evidence.broken_call(rank) if evidence.trace.recorded else None
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


class LinkKind(Kind):
    """Kinds of findings of this feature; a silence is `cut_off`."""

    SLOW_LINK = "slow_link", 1


class Flap(Finding):
    """Nothing was acknowledged between nodes for a while, and then the data arrived."""

    kind: Kind = FindingKind.CUT_OFF
    links: tuple[tuple[str, str], ...]
    nodes: tuple[str, ...] = ()
    """Nodes at one end of all links."""
    bursts_s: tuple[float, ...] = ()
    step_s: float | None = None
    """Duration of the step during which it happened."""

    def render(self) -> Words:
        """Say between which nodes nothing was acknowledged, how often, and for how long."""
        where = "; ".join(describe_pairs(self.links[:MOST_LINKS]))
        if self.nodes:
            rest = sorted({node for pair in self.links for node in pair} - {*self.nodes})
            where = f"{join_words(self.nodes)} and each of {join_words(rest)}"
        count, least = len(self.bursts_s), format_duration(min(self.bursts_s))
        times = f"{count} times, each time for" if count > 1 else "for"
        step = f"; {self.step} took {format_duration(self.step_s)} meanwhile" if self.step_s is not None else ""
        there = ran_there(self.ranks)
        silent = f"nothing was acknowledged between {where} {times} at least {least}"
        return f"{silent}, and then the data arrived{step}{there}"


class SlowLink(Finding):
    """Links that are far worse than others."""

    kind: Kind = LinkKind.SLOW_LINK
    measure: Literal["round_trip_s", "lost_share", "bytes_per_s"]
    worst: float
    rest: float
    segments: int = 0
    """Number of retransmitted segments."""
    links: tuple[tuple[str, str], ...] = ()
    nodes: tuple[str, ...] = ()
    """Nodes whose links they are; empty if the links have no common node."""

    def render(self) -> Words:
        """Say between which nodes, and how much worse than others."""
        pairs = join_words(describe_pairs(self.links[:MOST_LINKS]))
        between = f"between {f'{join_words(self.nodes)} and the others' if self.nodes else pairs}"
        if self.measure == "round_trip_s":
            worst, rest = format_duration(self.worst), format_duration(self.rest)
            what = f"round trips {between} took up to {worst}, between others at most {rest}"
        elif self.measure == "lost_share":
            again = f"TCP sent {format_count(self.segments, 'segment')} again {between}"
            what = f"{again}, up to {self.worst:.1%} of all, between others {self.rest:.2%}"
        else:
            worst, rest = format_bytes(round(self.worst)), format_bytes(round(self.rest))
            full = "though more data was waiting, and the receiver read at once"
            what = f"data went {between} at {worst}/s, {full}; between others at {rest}/s and more"
        return f"{what}{ran_there(self.ranks)}"


def explain_links(run: Explained) -> Iterator[Finding]:
    """Yield slow links, and silences unless the network was still broken when the run was over."""
    yield from find_slow_links(run.evidence)
    if not any(one.kind is FindingKind.CUT_OFF for one in run.causes):
        yield from find_flaps(run.evidence)


# -- nodes that were cut off for a while


_TOGETHER_S = 0.5
"""Silences closer together count as one: agents poll at this interval."""


class _Silence(NamedTuple):
    """Nothing was acknowledged between two nodes; times are seconds of the trace."""

    begin: float
    end: float
    """When this was reported."""
    pair: frozenset[str]
    is_over: bool
    """Whether more data was acknowledged later."""


def find_flaps(evidence: Evidence) -> Iterator[Finding]:
    """Yield silences between nodes that ended.

    The finding names a node if there are several such links and it is at one end of all of them. It names no node for a
    single link.
    """
    known = [(one, _meanwhile(evidence, one)) for one in sorted(_silences(evidence), key=lambda one: one[:2])]
    if not (silences := [one for one, step in known if step or one.is_over]):
        return
    bursts, until = list[float](), -math.inf  # duration of each; silences that overlap or nearly overlap are merged
    for one in silences:
        bursts.append(max(bursts.pop() if one.begin <= until + _TOGETHER_S else 0.0, one.end - one.begin))
        until = max(until, one.end)
    pairs = sorted({one.pair for one in silences}, key=sorted)
    common = frozenset.intersection(*pairs) if len(pairs) > 1 else frozenset()
    step = max((step for _, step in known if step), key=_seconds, default=None)
    yield Flap(
        links=tuple((one, other) for one, other in map(sorted, pairs)),
        nodes=tuple(common),
        bursts_s=tuple(bursts),
        step_s=_seconds(step) if step is not None else None,
        link=name_link(*pairs[0]) if len(pairs) == 1 else "",
        step=step.title if step is not None else "",
        lines=tuple(call.source for call in step.calls.values()) if step is not None else (),
        seconds=round(max(bursts), 6),
        **_ranks_on(common, evidence),
    )


def _ranks_on(nodes: Collection[str], evidence: Evidence) -> dict[str, Any]:
    """Return the ranks on these nodes, and all others."""
    ranks = tuple(rank.rank for rank in evidence.facts.ranks if rank.node in nodes)
    return {"ranks": ranks, "others": tuple(one.rank for one in evidence.facts.ranks if one.rank not in ranks)}


def _silences(evidence: Evidence) -> Iterator[_Silence]:
    connections = (event for event in evidence.record.events() if isinstance(event, Connections) and event.number)
    for way, reports in group_pairs(((one.node, one.peer), one) for one in connections).items():
        most = max(one.acknowledged_bytes for one in reports)
        for one in reports:
            if one.silent_s >= BLINK_S:
                end = one.time - evidence.trace.origin
                yield _Silence(end - one.silent_s, end, frozenset(way), one.acknowledged_bytes < most)


def _meanwhile(evidence: Evidence, silence: _Silence) -> Step | None:
    """Return the longest step between ranks of both nodes that was in progress at the time and completed later."""
    node_of = {rank.rank: rank.node for rank in evidence.facts.ranks}
    ended = [step for step in evidence.steps if step.end is not None and step.begin < silence.end < step.end]
    between = [step for step in ended if silence.pair <= {node_of.get(rank) for rank in step.calls}]
    return max(between, key=_seconds, default=None)


def _seconds(step: Step) -> float:
    return (step.end or 0.0) - step.begin


# -- links that are much slower, or lose much more, than others

_LEAST_S = 0.01
"""Shorter round trips are no problem,"""
_TIMES = 10
"""nor are round trips below this many times those of the fastest link."""
_APART = 3
"""Each slow link must take this many times as long as each other link."""
_LEAST_REPORTS = 2
_LEAST_SEGMENTS = 500
"""A link must have sent this many segments before losses count,"""
_LEAST_SHARE = 0.005
"""at least this share must be lost, and also _TIMES the share of the best link."""
_LEAST_BYTES = 50_000
"""A connection must have moved this many bytes between two reports before its rate counts."""
_LEAST_BUSY_S = 0.25
"""It is full if it was busy for this long,"""
_LEAST_ON_ITS_WAY = 16_000
"""this many bytes were unacknowledged at the end,"""
_MOST_UNREAD = 0.2
"""and it waited for its reader for at most this part of the time."""
_CLOCK_S = 0.001
"""The kernel counts busy time in ticks of this length."""
Reports = Mapping[Pair, tuple[list[Connections], list[Connections]]]
"""By link: reports of the kernels at each of its ends."""


def find_slow_links(evidence: Evidence) -> Iterator[Finding]:
    """Yield links with long round trips, or with many losses, or with low rates.

    The finding names a node if all slow links are links of it.
    """
    reports: dict[Pair, tuple[list[Connections], list[Connections]]] = defaultdict(lambda: ([], []))
    for event in evidence.record.events():
        if isinstance(event, Connections) and event.number and not event.stuck:
            pair = min(event.node, event.peer), max(event.node, event.peer)
            reports[pair][pair.index(event.node)].append(event)
    nodes = sorted({node for pair in reports for node in pair})
    if len(nodes) < 3 or set(reports) != set(combinations(nodes, 2)):
        return
    facts = _slow(reports) or _lossy(reports) or _narrow(reports)
    if facts is not None:
        off = outside_of_most(nodes, facts.links)
        link = name_link(*facts.links[0]) if len(facts.links) == 1 and not off else ""
        yield replace(facts, nodes=off, link=link, **_ranks_on(off, evidence))


def _slow(reports: Reports) -> SlowLink | None:
    trips: dict[Pair, float] = {}
    for pair, ends in reports.items():
        ways = [[one.round_trip_s for one in end if one.round_trip_s] for end in ends]
        if not all(len(way) >= _LEAST_REPORTS for way in ways):
            return None
        trips[pair] = max(map(median, ways))
    fastest = min(trips.values())
    slow = tuple(pair for pair, seconds in trips.items() if seconds >= max(_LEAST_S, _TIMES * fastest))
    rest = max(seconds for pair, seconds in trips.items() if pair not in slow)
    if not slow or min(trips[pair] for pair in slow) < _APART * rest:
        return None
    return SlowLink(measure="round_trip_s", worst=max(trips[pair] for pair in slow), rest=rest, links=slow)


def _lossy(reports: Reports) -> SlowLink | None:
    counts: dict[Pair, tuple[int, int]] = {}
    for pair, ends in reports.items():
        last = [max(end, key=lambda one: one.time) for end in ends if end]
        counts[pair] = sum(one.sent_again for one in last), sum(one.segments_out for one in last)
    shares = {pair: again / sent for pair, (again, sent) in counts.items() if sent >= _LEAST_SEGMENTS}
    best = min(shares.values(), default=0.0)
    lossy = tuple(pair for pair, share in shares.items() if share >= max(_LEAST_SHARE, _TIMES * best))
    if not lossy or len(lossy) == len(shares):
        return None
    again, most = sum(counts[pair][0] for pair in lossy), max(shares[pair] for pair in lossy)
    return SlowLink(measure="lost_share", worst=most, rest=best, segments=again, links=lossy)


def _narrow(reports: Reports) -> SlowLink | None:
    """Return links that were full at a rate far below that of others: neither the sender nor the reader was slow."""
    full: dict[Pair, float] = {}
    fast: dict[Pair, float] = {}
    for pair, ends in reports.items():
        for before, one in (two for end in ends for two in pairwise([Connections(0.0), *end])):
            moved, busy_s = one.most_bytes - before.most_bytes, one.busy_s - before.busy_s
            unread_s, speed = one.reader_late_s - before.reader_late_s, moved / max(busy_s, _CLOCK_S)
            if moved >= _LEAST_BYTES and busy_s >= 0:
                fast[pair] = max(fast.get(pair, 0.0), speed)
                on_its_way = one.unacknowledged_bytes >= _LEAST_ON_ITS_WAY
                if busy_s >= _LEAST_BUSY_S and on_its_way and unread_s <= _MOST_UNREAD * busy_s:
                    full[pair] = min(full.get(pair, speed), speed)
    fastest = max((speed for pair, speed in fast.items() if pair not in full), default=0.0)
    narrow = tuple(pair for pair, speed in full.items() if speed * _TIMES <= fastest)
    rest = min((speed for pair, speed in fast.items() if pair not in narrow), default=0.0)
    if not narrow or rest < _APART * max(full[pair] for pair in narrow):
        return None
    return SlowLink(measure="bytes_per_s", worst=min(full[pair] for pair in narrow), rest=rest, links=narrow)
