"""What was given to submissions, as `lab grade --json` prints it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from lab.spec.scenario import Verdict


@dataclass(frozen=True, kw_only=True)
class Score:
    """One expectation of the scenario, and what a submission earned by it."""

    what: str
    """As verdicts call it: `exit`, `note sum`, `check`."""
    points: float = 0.0
    """What it earned."""
    of: float = 1.0
    """What can be earned."""
    met: bool = False
    told: tuple[str, ...] = ()
    """Where it was not met, a sentence each; why it earned nothing although it was."""


@dataclass(frozen=True, kw_only=True)
class Grade:
    """What one submission earned, and why."""

    name: str
    """Of whoever handed it in: the name of the file or folder."""
    verdict: Verdict = "error"
    """Of its run; `failed` where it could not even be run, `error` where that is not its fault."""
    reason: str = ""
    """One sentence."""
    scores: tuple[Score, ...] = ()
    told: tuple[str, ...] = ()
    """What else whoever handed it in should know, a sentence each."""
    traceback: str = ""
    """Of the rank that failed first, its last lines."""
    forfeited: str = ""
    """Why nothing of what it met counts."""
    duration_s: float = 0.0
    """Of its run."""
    path: Path | None = None
    """The record of its run."""

    @property
    def graded(self) -> bool:
        """Whether it has points; what could not be run through no fault of its own has none."""
        return self.verdict != "error"

    @property
    def points(self) -> float | None:
        """What it earned in all; None where it is not graded."""
        return sum(score.points for score in self.scores) if self.graded else None

    @property
    def of(self) -> float:
        """What could be earned in all."""
        return sum(score.of for score in self.scores)

    def to_json(self) -> dict[str, Any]:
        """The grade as plain data."""
        path = str(self.path) if self.path else None
        return {**asdict(self), "path": path, "points": self.points, "of": self.of}


@dataclass(frozen=True, kw_only=True)
class Grades:
    """What all submissions earned, by name."""

    UNTRUSTED: ClassVar[str] = "strict cluster"
    TRUSTED: ClassVar[str] = "none (--trust)"
    scenario: str
    engine: str
    isolation: str
    """What kept a submission from the machine and from the next one: one of the two above."""
    grades: tuple[Grade, ...]
    duration_s: float = 0.0
    """Of all of it."""

    @property
    def of(self) -> float:
        """What could be earned."""
        return max((grade.of for grade in self.grades), default=0.0)

    @property
    def mean(self) -> float | None:
        """The mean of the points of those that are graded; None where none is."""
        points = [grade.points for grade in self.grades if grade.points is not None]
        return sum(points) / len(points) if points else None

    @property
    def verdicts(self) -> Counter[str]:
        """How many submissions have which verdict."""
        return Counter(grade.verdict for grade in self.grades)

    def to_json(self) -> dict[str, Any]:
        """The grades as plain data."""
        whole = {"scenario": self.scenario, "engine": self.engine, "isolation": self.isolation}
        return {
            **whole,
            "of": self.of,
            "mean": self.mean,
            "duration_s": round(self.duration_s, 3),
            "grades": [grade.to_json() for grade in self.grades],
        }
