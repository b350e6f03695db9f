"""What an explanation is: plain data, from which every view of it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that the facts of a run show."""

    kind: str
    """What sort of thing, such as `mismatch`; `docs/explain.md` lists them."""
    sentence: str
    """One or two sentences."""
    ranks: tuple[int, ...] = ()
    """Whose doing it is; empty where nobody can be named."""
    others: tuple[int, ...] = ()
    """Who else took part or suffered."""
    step: str = ""
    """The collective or message that it is about, such as `all_reduce #3`."""
    lines: tuple[str, ...] = ()
    """The lines of the script, `file:line`; those of `ranks` first."""
    seconds: float | None = None
    """How long the others waited, or whatever time the sentence speaks of."""

    @property
    def headline(self) -> str:
        """The first sentence, as a clause: without a capital letter and a full stop."""
        first = self.sentence.partition(". ")[0].removesuffix(".")
        return first[:1].lower() + first[1:]


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
