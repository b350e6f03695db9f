"""What is said of a run: its judgement, and findings, each a sentence with the facts that it rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

from lab.frozen import dataclass
from lab.record.result import Culprit
from lab.spec.scenario import Verdict
from lab.words import capital

T = TypeVar("T")


def majority(by_rank: Mapping[int, T]) -> tuple[T | None, tuple[int, ...]]:
    """What more than half of the ranks have, and who has something else; None and nobody where there is no majority."""
    common, count = Counter(by_rank.values()).most_common(1)[0] if by_rank else (None, 0)
    if 2 * count <= len(by_rank):
        return None, ()
    return common, tuple(sorted(rank for rank, what in by_rank.items() if what != common))


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The bare outcome of a run, before what the scenario expects is considered."""

    verdict: Verdict
    reason: str
    culprit: Culprit | None = None


@dataclass(frozen=True, kw_only=True)
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
    link: str = ""
    """The link between two nodes that it is about, where it is neither's doing: `node0 - node2`."""
    step: str = ""
    """The collective or message that it is about, such as `all_reduce #3`."""
    lines: tuple[str, ...] = ()
    """The lines of the script, `file:line`; those of `ranks` first."""
    seconds: float | None = None
    """How long the others waited, or whatever time the sentence speaks of."""

    def __post_init__(self) -> None:
        """Its lines are each named once, and its sentence begins with a capital letter."""
        object.__setattr__(self, "lines", tuple(dict.fromkeys(filter(None, self.lines))))
        object.__setattr__(self, "sentence", capital(self.sentence))

    @property
    def headline(self) -> str:
        """The first sentence, as a clause: without a capital letter and a full stop."""
        first = self.sentence.partition(". ")[0].removesuffix(".")
        return first[:1].lower() + first[1:]
