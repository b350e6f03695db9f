"""What an explanation is: plain data, from which every view of it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lab.diagnosis.finding import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What can be said of a run."""

    run: str
    scenario: str
    verdict: str
    sentence: str
    """The verdict's reason."""
    findings: tuple[Finding, ...] = ()
    """The most important first."""
    stacks: Mapping[int, str] = field(default_factory=dict)
    """By rank: the Python stack of who was stopped, or the traceback of who raised; of ranks in the findings only."""
    problems: tuple[str, ...] = ()
    """What is missing or damaged in the record, a sentence each."""

    def to_json(self) -> dict[str, Any]:
        """The explanation as plain data."""
        data = asdict(self)
        data["stacks"] = {str(rank): text for rank, text in self.stacks.items()}
        return data
