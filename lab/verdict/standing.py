"""Who kept the others waiting in a run that did not go on, as far as stacks tell."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from lab.verdict.ends import went_alone, where_it_was
from lab.verdict.evidence import Evidence


@dataclass(frozen=True)
class Standing:
    """Where ranks were when their stacks were taken."""

    waiting: list[int]
    """In a function of torch.distributed."""
    absent: list[int]
    """Alive, and somewhere else."""
    gone: list[int]
    """Ended by themselves, the earliest first."""

    @classmethod
    def of(cls, evidence: Evidence) -> Standing:
        """Look at every rank."""
        ranks = evidence.facts.ranks
        waiting = [rank.rank for rank in ranks if (at := evidence.stood(rank)) is not None and at.call]
        gone = sorted((rank for rank in ranks if not rank.alive), key=lambda rank: rank.ended or 0.0)
        absent = [rank.rank for rank in ranks if rank.alive and rank.rank not in waiting]
        return cls(waiting, absent, [rank.rank for rank in gone])

    def waited_for(self, evidence: Evidence) -> tuple[int | None, str]:
        """Who kept the others waiting, and what it did, as the end of a sentence; None where nobody can be named."""
        waiting, places = self.waiting, {rank: where_it_was(evidence, evidence.ranks[rank]) for rank in evidence.ranks}
        if self.absent:
            missed = "did not come to the collective that others waited in, it " if waiting else ""
            return self.absent[0], f"{missed}was {places[self.absent[0]]}"
        if not waiting:
            return None, ""
        if len(self.gone) > len(waiting):
            return waiting[0], went_alone(evidence.stood(evidence.ranks[waiting[0]]), self.gone)
        if self.gone:
            return self.gone[0], "exited early, with code 0, while others waited for it"
        common, count = Counter(places[rank] for rank in waiting).most_common(1)[0]
        odd = [rank for rank in waiting if places[rank] != common]
        if not odd or 2 * count <= len(waiting):
            return None, ""  # no majority: whose call is the wrong one cannot be told from where they stand
        return odd[0], f"was {places[odd[0]]} while others were {common}"
