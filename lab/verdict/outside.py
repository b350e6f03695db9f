"""What came over ranks from outside: nodes that were paused or cut off, workers that a signal stopped."""

from __future__ import annotations

from dataclasses import dataclass

from lab.verdict.facts import RunFacts
from lab.verdict.finding import Finding
from lab.words import name_ranks


@dataclass(frozen=True)
class Blow:
    """One thing that kept ranks from going on, and that none of them did."""

    what: str
    """As a clause: `node1 was paused; rank 1 ran there`."""
    node: str
    ranks: tuple[int, ...]

    def finding(self) -> Finding:
        """The same as a finding."""
        return Finding(kind="outside", sentence=f"{self.what}.", ranks=self.ranks)


def blows(facts: RunFacts) -> list[Blow]:
    """Everything that still held ranks up when the run was over."""
    found = []
    for node, how in facts.troubled.items():
        ranks = tuple(rank.rank for rank in facts.ranks if rank.node == node and not rank.left)
        if ranks:
            found.append(Blow(f"{node} {how}; {name_ranks(ranks)} ran there", node, ranks))
    for rank in facts.ranks:
        if rank.halted and not rank.left:
            where = f" ({rank.node})" if rank.node else ""
            found.append(Blow(f"rank {rank.rank}{where} was stopped by {rank.halted}", rank.node, (rank.rank,)))
    return found
