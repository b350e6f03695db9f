"""Undoing what the journal of a cluster says, and seeing a cluster as it is meant to be while something is broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lab.engine.protocol import Engine
from lab.features.faults.breaking import Breaker, heal
from lab.features.faults.fault_journal import BY_HAND, FaultJournal, Standing
from lab.features.faults.ground import ClusterGround
from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo
from lab.words import listing

_AGENT_ANSWERS = "disconnected"
"""The state of a node whose cable is out: its agent is talked with over the engine."""


def heal_all(
    engine: Engine, name: str, info: ClusterInfo | None, tell: Callable[[str], object], *, by_hand: bool = True
) -> list[Standing]:
    """Undo what was broken on purpose, what came last first, and say so in a line; returns what was undone.

    Args:
        engine: of the cluster.
        name: the cluster's.
        info: None where there is none: then nothing is broken any more.
        tell: called with that line, and with what could not be undone.
        by_hand: undo also what `lab fault` did.
    """
    journal = FaultJournal(engine.name, name)
    if info is None:
        journal.forget()
        return []
    standing = [one for one in journal.standing() if by_hand or one.by != BY_HAND]
    healed = heal(Breaker(ClusterGround(engine, info)), standing, tell)
    if healed:
        tell(f"healed what was broken on purpose: {listing(one.said for one in reversed(healed))}")
    return healed


def as_broken(info: ClusterInfo) -> ClusterInfo:
    """The cluster, with nodes that do not run on purpose as stopped, and those without their cable as running."""
    on_purpose = {
        node
        for one in FaultJournal(info.engine, info.name).standing()
        for node in (one.what.nodes if one.what is not None else ())
    }

    def state(now: str) -> str:
        return now if now == RUNNING else RUNNING if now == _AGENT_ANSWERS else STOPPED

    nodes = (replace(one, state=state(one.state)) if one.name in on_purpose else one for one in info.nodes)
    return replace(info, nodes=tuple(nodes))
