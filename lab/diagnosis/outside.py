"""What came over ranks from outside: nodes that were paused or cut off, workers that a signal stopped."""

from __future__ import annotations

from dataclasses import dataclass

from lab.diagnosis.cut import find_cut
from lab.diagnosis.facts import RunFacts
from lab.diagnosis.finding import Finding
from lab.record.result import Culprit
from lab.words import name_ranks


@dataclass(frozen=True)
class Blow:
    """One thing that kept ranks from going on, and that none of them did."""

    what: str
    """As a clause: `node1 was paused; rank 1 ran there`."""
    node: str
    ranks: tuple[int, ...]
    """Whom it came over; empty where nobody can be named."""
    kind: str = "outside"
    """Of the finding."""
    cause: str = "cut_off"
    link: str = ""
    """The link that it came over, where nobody is named."""

    def finding(self) -> Finding:
        """The same as a finding."""
        return Finding(kind=self.kind, sentence=f"{self.what}.", ranks=self.ranks, link=self.link)

    @property
    def culprit(self) -> Culprit | None:
        """Whom it came over first, in place of whose fault it was; or the link."""
        if self.link:
            return Culprit(link=self.link, error=self.what)
        return Culprit(rank=self.ranks[0], node=self.node, error=self.what) if self.ranks else None


def blows(facts: RunFacts) -> list[Blow]:
    """Everything that still held ranks up when the run was over."""
    found = []
    for node, how in facts.troubled.items():
        ranks = tuple(rank.rank for rank in facts.ranks if rank.node == node and not rank.left)
        if ranks:
            cause = "node_disconnected" if "network" in how else "node_paused"
            found.append(Blow(f"{node} {how}; {name_ranks(ranks)} ran there", node, ranks, cause=cause))
    for rank in facts.ranks:
        if rank.halted and not rank.left:
            where = f" ({rank.node})" if rank.node else ""
            what = f"rank {rank.rank}{where} was stopped by {rank.halted}"
            found.append(Blow(what, rank.node, (rank.rank,), cause="stopped"))
    return found or _cut_off(facts)


def _cut_off(facts: RunFacts) -> list[Blow]:
    """A break in the network between nodes that were there."""
    gone = {lost.node for lost in facts.lost_nodes}
    cut = find_cut(facts.network, {rank.node for rank in facts.ranks} - gone - {""}) if facts.network.stuck else None
    if cut is None:
        return []
    ranks = tuple(rank.rank for rank in facts.ranks if rank.node in cut.nodes)
    there = f"; {name_ranks(ranks)} ran there" if ranks else ""
    return [Blow(f"{cut.what}{there}", cut.nodes[0] if cut.nodes else "", ranks, "cut_off", link=cut.link)]
