"""What was broken in a run on purpose, and whom a right diagnosis names for it. Read from the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lab.diagnosis.links import outside_of_most
from lab.errors import LabError
from lab.features.faults.detection import Detection, facts_of, find_detections
from lab.features.faults.fault import Fault, kind_of
from lab.features.faults.kind import FaultKind, key_of
from lab.features.faults.kinds.links import LinkFault
from lab.record import events
from lab.record.read import Record
from lab.spec.declare import keys_of
from lab.words import name_link


@dataclass(frozen=True, kw_only=True)
class Injected:
    """One fault that was in force, and the truth about it."""

    kind: str
    """The key that says what was done."""
    shown_as: tuple[str, ...]
    """Causes of a culprit, or kinds of findings, that are right for it."""
    detection: Detection
    nodes: tuple[str, ...] = ()
    """To whom it was done: whoever names one of these is right, or one of the ranks there."""
    ranks: tuple[int, ...] = ()
    """The same, where it was done to single ranks."""
    links: tuple[str, ...] = ()
    """The links that it was done to: whoever names one of these is right too."""
    alone: bool = True
    """Whether somebody has to be named; a link between two nodes may well be named in place of either."""

    def names(self, rank: int | None, node: str, link: str = "") -> bool:
        """Whether it was done to that rank, or to that node, or to that link."""
        if link:
            return link in self.links
        return node in self.nodes if rank is None or self.nodes else rank in self.ranks


def find_injected(record: Record) -> list[Injected]:
    """All that was in force in a run, in its order; what another version of the lab did is left out."""
    plan, facts = record.plan(), facts_of(record)
    in_force = [fact for fact in facts if isinstance(fact, events.Fault)]
    nodes = sorted({worker.node for worker in plan.workers})
    found = []
    for fact, detection in zip(in_force, find_detections(facts), strict=True):
        data = plan.faults[fact.number] if fact.number is not None and 0 <= fact.number < len(plan.faults) else {}
        what = _what(data)
        if what is not None and what.shown_as:
            found.append(_truth(what, nodes, detection))
    return found


def _what(data: Mapping[str, Any]) -> FaultKind | None:
    named = {name: value for name, value in data.items() if name not in keys_of(Fault)}
    with suppress(LabError, KeyError, ValueError, TypeError):
        return kind_of(named) if len(named) == 1 else None
    return None


def _truth(what: FaultKind, nodes: list[str], detection: Detection) -> Injected:
    known: dict[str, Any] = {"kind": key_of(type(what)), "shown_as": what.shown_as, "detection": detection}
    if what.ranks:
        return Injected(**known, ranks=what.ranks)
    pairs = pairs_of(what, nodes)
    links = tuple(sorted(name_link(*pair) for pair in pairs))
    if not (pairs and isinstance(what, LinkFault)):
        return Injected(**known, nodes=what.nodes, links=links, alone=len(what.nodes) == 1)
    off = outside_of_most(nodes, pairs)
    ends = tuple(sorted({node for pair in pairs for node in pair}))
    return Injected(**known, nodes=off or ends, links=links, alone=bool(off))


def pairs_of(what: FaultKind, nodes: Sequence[str]) -> set[frozenset[str]]:
    """Pairs of nodes between which a fault has something not as it was; one whose cable is out has it so with all."""
    if not isinstance(what, LinkFault):
        cut = what.nodes if "cut_off" in what.shown_as else ()
        return {frozenset((node, peer)) for node in cut for peer in nodes if peer != node}
    pairs, tables = set(), what.tables({node: node for node in nodes})
    for node, told in tables.items():
        peers = {peer for side in ("to", "from") for peer, condition in told.get(side, {}).items() if condition}
        whole = any(value for name, value in told.items() if name not in ("to", "from", "address"))
        pairs |= {frozenset((node, peer)) for peer in (nodes if whole else peers) if peer != node}
    return pairs
