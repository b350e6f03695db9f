"""Nodes that were cut off for a while and reached the others again: by what the kernels said of their connections."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding
from lab.node.messages.agent import BLINK_S, Connections
from lab.trace.steps import Step
from lab.words import format_duration, listing, name_link, name_ranks

_TOGETHER_S = 0.5
"""Silences that lie no farther apart are one: an agent looks so often."""
_MOST_LINKS = 4


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
    where = "; ".join(" and ".join(sorted(pair)) for pair in pairs[:_MOST_LINKS])
    if common:
        where = f"{listing(common)} and each of {listing(sorted(frozenset.union(*pairs) - common))}"
    bursts = _bursts(silences)
    times = f"{len(bursts)} times, each time for" if len(bursts) > 1 else "for"
    least = format_duration(min(bursts))
    sentence = f"Nothing was acknowledged between {where} {times} at least {least}, and then it came through"
    step = max((step for _, step in found if step), key=_seconds, default=None)
    sentence += f"; {step.title} took {format_duration(_seconds(step))} meanwhile" if step is not None else ""
    ranks = tuple(rank.rank for rank in evidence.facts.ranks if rank.node in common)
    sentence += f"; {name_ranks(ranks)} ran there." if ranks else "."
    return [
        Finding(
            kind="cut_off",
            sentence=sentence,
            ranks=ranks,
            others=tuple(rank.rank for rank in evidence.facts.ranks if rank.rank not in ranks),
            link=name_link(*pairs[0]) if len(pairs) == 1 else "",
            step=step.title if step is not None else "",
            lines=tuple(call.source for call in step.calls.values()) if step is not None else (),
            seconds=round(max(bursts), 6),
        )
    ]


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
