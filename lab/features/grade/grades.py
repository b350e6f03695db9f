"""What submissions earn, and what whoever handed one in is told of it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

from lab.diagnosis.facts import RunFacts
from lab.diagnosis.reasons import render_limits
from lab.features.grade.keys import Grading, graded_of, grading_of
from lab.frozen import Frozen
from lab.node.messages.agent import CHECK
from lab.record.result import Expectation, Result
from lab.report import sanitize
from lab.spec.scenario import Expect, Scenario, Verdict
from lab.words import clip_end, clip_middle, name_ranks


class Score(Frozen):
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


class Grade(Frozen):
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


class Grades(Frozen):
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
    def whats(self) -> list[str]:
        """The expectations, as verdicts call them."""
        return [score.what for score in self.grades[0].scores] if self.grades else []

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
        grades, duration_s = [grade.to_json() for grade in self.grades], round(self.duration_s, 3)
        return {**vars(self), "of": self.of, "mean": self.mean, "duration_s": duration_s, "grades": grades}


_LONGEST = 600
_LONGEST_LINE = 200
_TRACEBACK_LINES = 20


def grade_of(name: str, result: Result, facts: RunFacts, assignment: Scenario, told: Sequence[str] = ()) -> Grade:
    """The grade of a submission that was run; `told` is what there is to say of it beside its run."""
    why_not = forfeited(facts)
    verdict, reason, traceback = result.verdict, result.reason, ""
    if result.culprit is not None and verdict != "passed":
        lines = sanitize.sanitize_plain(result.culprit.traceback).splitlines()[-_TRACEBACK_LINES:]
        traceback = "\n".join(clip_end(line, _LONGEST_LINE) for line in lines)
    if why_not and verdict == "passed":
        verdict, reason = "failed", why_not
    earned = scores(assignment.expect, grading_of(assignment), result, why_not)
    return Grade(
        name=plain(name),
        verdict=verdict,
        reason=plain(reason),
        scores=tuple(replace(score, told=tuple(map(plain, score.told))) for score in earned),
        told=tuple(map(plain, told)),
        traceback=traceback,
        forfeited=plain(why_not),
        duration_s=result.duration_s or 0.0,
        path=result.path,
    )


def without_run(name: str, why: str, assignment: Scenario, verdict: Verdict) -> Grade:
    """The grade of a submission that cannot be run, `failed`, or that the lab could not run, `error`."""
    of = worth(assignment.expect, grading_of(assignment))
    scores = tuple(Score(what=what, of=points) for what, points in of.items())
    return Grade(name=plain(name), verdict=verdict, reason=plain(why), scores=scores)


def plain(text: str) -> str:
    """A sentence, parts of which may come from scripts, as one line of plain text."""
    return clip_middle(" ".join(sanitize.sanitize_plain(text).split()), _LONGEST)


_EXIT_ALONE = "it counts only beside something else that is right: a script that does nothing ends well too"
_MOST_TOLD = 8


def worth(expect: Expect, grading: Grading) -> dict[str, float]:
    """What each expectation is worth, in their order."""
    return {what: grading.points.get(what, 1.0) for what in graded_of(expect)}


def forfeited(facts: RunFacts) -> str:
    """Why nothing that a run produced counts; empty where it counts.

    It reached a limit, cost a node, or kept it so busy that nobody heard how its ranks ended: whatever it did besides,
    it was not what was asked for.
    """
    attempts = (*facts.earlier, facts)
    if reached := [limit for one in attempts for limit in one.limits if limit.rank != CHECK]:
        return "; ".join(render_limits(reached))
    if lost_nodes := [lost for one in attempts for lost in one.lost_nodes]:
        return "; ".join(f"{lost.node} {lost.how}" for lost in lost_nodes)
    unheard = unheard_of(facts)
    return f"when the time was up, nobody heard any more how {name_ranks(unheard)} ended" if unheard else ""


def unheard_of(facts: RunFacts) -> list[int]:
    """Ranks of which nobody knows how they ended although their nodes are there."""
    return [rank.rank for rank in facts.ranks if rank.started is not None and not rank.over]


def broke_off(facts: RunFacts) -> bool:
    """Whether the check did not end by itself, nor for what it did: it may have been the machine that kept it from it.

    It took too long, could not start, crashed, or was killed, and not because the memory of its node ran out; or a node
    was lost although every rank had ended.
    """
    check = facts.check
    cut = check is not None and check.code is None and not check.out_of_memory
    return cut or bool(facts.lost_nodes and all(rank.over and not rank.node_lost for rank in facts.ranks))


def scores(expect: Expect, grading: Grading, result: Result, why_not: str = "") -> tuple[Score, ...]:
    """What a run earned by each expectation.

    An expectation earns all of its points or none: it has to be met by every rank that it speaks of. That ranks end
    as expected, which an empty script does too, earns nothing where nothing else does.

    Args:
        expect: what was expected.
        grading: what that is worth.
        result: of the run.
        why_not: why nothing counts, from `forfeited`.
    """
    points = worth(expect, grading)
    about: dict[str, list[Expectation]] = {what: [] for what in points}
    for one in result.expectations:
        what = "check" if one.what.startswith("check ") else one.what  # whose file and function results name
        about.get(what, []).append(one)
    met = {what: bool(found) and all(one.met for one in found) for what, found in about.items()}
    if "exit" in met:  # the lab may have stopped some
        asked: Collection[int] = expect.exit if expect.verdict != "passed" else [rank.rank for rank in result.ranks]
        met["exit"] = met["exit"] and {one.rank for one in about["exit"]}.issuperset(asked)
    others = [what for what in points if what != "exit" and points[what]]
    alone = bool(others) and not any(met[what] for what in others) and not any(expect.exit.values())
    found = []
    for what, of in points.items():
        told = [one.sentence() for one in about[what] if not one.met][:_MOST_TOLD]
        if not met[what] and not told:
            told = [_why_unasked(what, result)]
        is_idle = what == "exit" and alone
        earns = met[what] and not why_not and not is_idle
        if met[what] and is_idle and not why_not:
            told = [_EXIT_ALONE]
        found.append(Score(what=what, points=of if earns else 0.0, of=of, met=met[what], told=tuple(told)))
    return tuple(found)


def _why_unasked(what: str, result: Result) -> str:
    """Why nothing was found about an expectation."""
    if what == "check":
        return "the check is made only of a run in which every rank ends as expected"
    stopped = [rank.rank for rank in result.ranks if rank.stopped]
    return f"{name_ranks(stopped)} had to be stopped" if what == "exit" and stopped else "the run did not come to it"
