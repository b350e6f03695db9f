"""Where ranks were when a run did not go on, by their stacks: who waited, who was elsewhere, who had gone."""

from __future__ import annotations

from dataclasses import dataclass

from lab.diagnosis.ends import went_alone, where_it_was
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import majority


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
        ranks = sorted(evidence.facts.ranks, key=lambda rank: rank.ended or 0.0)
        waiting = sorted(rank.rank for rank in ranks if (at := evidence.stood(rank)) is not None and at.call)
        absent = sorted(rank.rank for rank in ranks if rank.alive and rank.rank not in waiting)
        return cls(waiting, absent, [rank.rank for rank in ranks if not rank.alive])

    def waited_for(self, evidence: Evidence) -> tuple[int | None, str]:
        """Who kept the others waiting, and what it did, as the end of a sentence; None where nobody can be named."""
        waiting, places = self.waiting, {rank: where_it_was(evidence, evidence.ranks[rank]) for rank in evidence.ranks}
        if len(self.absent) > 1 and not waiting:
            return None, ""  # each was busy with something of its own, and nobody waited for another
        if self.absent:
            missed = "did not come to the collective that others waited in, it " if waiting else ""
            return self.absent[0], f"{missed}was {places[self.absent[0]]}"
        if not waiting:
            return None, ""
        if len(self.gone) > len(waiting):
            return waiting[0], went_alone(evidence.stood(evidence.ranks[waiting[0]]), self.gone)
        if self.gone:
            return self.gone[0], "exited early, with code 0, while others waited for it"
        common, odd = majority({rank: places[rank] for rank in waiting})
        if not odd:
            return None, ""  # no majority: whose call is the wrong one cannot be told from where they stand
        return odd[0], f"was {places[odd[0]]} while others were {common}"
