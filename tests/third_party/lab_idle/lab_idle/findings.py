"""What `lab explain` says of a run on the idle engine: its kind, its facts, the rule that finds it, and its words."""

from __future__ import annotations

from lab.diagnosis.evidence import Explained
from lab.diagnosis.finding import Finding, Kind, Words
from lab_idle.keys import LEAST


class IdleKind(Kind):
    """The kinds of findings of this package."""

    POLITE = "polite", 9


class Polite(Finding):
    """That nodes leave the processor to everybody else."""

    kind: Kind = IdleKind.POLITE
    nodes: int
    least: int = LEAST
    """The least niceness that they have."""

    def render(self) -> Words:
        """How many nodes, and what that means for times."""
        return (
            f"{self.nodes} nodes left the processor to everybody else, with a niceness of {self.least} or more",
            "How long anything took depends on what else ran there.",
        )


def find_polite_nodes(run: Explained) -> list[Finding]:
    """A finding for each run on the idle engine."""
    if run.evidence.record.plan().engine != "idle":
        return []
    ranks = run.evidence.facts.ranks
    return [Polite(nodes=len({rank.node for rank in ranks}), others=tuple(rank.rank for rank in ranks))]
