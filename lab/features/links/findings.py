"""Find problems of links between nodes during a run: silences, long round trips, losses, and low rates."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import combinations, pairwise
from statistics import median
from typing import Any, Literal, NamedTuple

from lab.diagnosis.evidence import Evidence, Explained
from lab.diagnosis.finding import Finding, FindingKind, Kind, Words
from lab.diagnosis.links import outside_of_most
from lab.diagnosis.wording import ran_there
from lab.features.links.connections import MOST_LINKS, Pair, describe_pairs
from lab.grouping import group_pairs
from lab.node.messages.agent import BLINK_S, Connections
from lab.trace.steps import Step
from lab.words import format_bytes, format_count, format_duration, join_words, name_link


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
    silences = [one for one, step in known if step or one.is_over]
    if not silences:
        return
    bursts, until = list[float](), -math.inf  # duration of each; silences that overlap or nearly overlap are merged
    for one in silences:
        together = bursts.pop() if one.begin <= until + _TOGETHER_S else 0.0
        bursts.append(max(together, one.end - one.begin))
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
