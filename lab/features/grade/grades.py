"""Points for submissions, and messages for their authors. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

from lab.diagnosis.facts import RunFacts
from lab.diagnosis.reasons import render_limits
from lab.features.grade.keys import Grading, list_expectations, scenario_grading
from lab.frozen import Frozen
from lab.node.messages.agent import CHECK
from lab.record.result import Expectation, Result
from lab.report import sanitize
from lab.spec.scenario import Expect, Scenario, Verdict
from lab.words import clip_end, clip_middle, merge_ranks, name_ranks


class Score(Frozen):
    """One expectation of the scenario, and the points that a submission earned by it."""

    what: str
    """The name of the expectation in verdicts: `exit`, `note sum`, `check`."""
    points: float = 0.0
    """The points that the submission earned."""
    of: float = 1.0
    """The points that it could earn."""
    met: bool = False
    messages: tuple[str, ...] = ()
    """Why the run does not meet the expectation, or why it earns nothing although it does; one sentence each."""


class Grade(Frozen):
    """What one submission earned, and why."""

    name: str
    """Name of the author: the name of the file or folder."""
    verdict: str = "error"
    """Verdict of the run; `failed` if the submission could not be run, `error` if the lab could not run it."""
    reason: str = ""
    """One sentence."""
    scores: tuple[Score, ...] = ()
    messages: tuple[str, ...] = ()
    """Further messages for the author, one sentence each."""
    traceback: str = ""
    """Last lines of the traceback of the rank that failed first."""
    forfeited: str = ""
    """Why the submission earns nothing although it met expectations; empty if its points count."""
    duration_s: float = 0.0
    """Duration of the run."""
    path: Path | None = None
    """The record of the run."""

    @property
    def is_graded(self) -> bool:
        """Whether the submission has points; without points if the lab could not run it."""
        return self.verdict != "error"

    @property
    def points(self) -> float | None:
        """The points that the submission earned in total; None if it is not graded."""
        return sum(score.points for score in self.scores) if self.is_graded else None

    @property
    def of(self) -> float:
        """The points that it could earn in total."""
        return sum(score.of for score in self.scores)

    def to_json(self) -> dict[str, Any]:
        """Return the grade as plain data."""
        path = str(self.path) if self.path else None
        scores = [_plain_data(score) for score in self.scores]
        return {**_plain_data(self), "scores": scores, "path": path, "points": self.points, "of": self.of}


def _plain_data(value: Score | Grade) -> dict[str, Any]:
    """Return the fields of a score or a grade; JSON has the messages under the key `told`."""
    return {"told" if name == "messages" else name: data for name, data in asdict(value).items()}


class Grades(Frozen):
    """What all submissions earned, by name."""

    UNTRUSTED: ClassVar[str] = "strict cluster"
    TRUSTED: ClassVar[str] = "none (--trust)"
    scenario: str
    engine: str
    isolation: str
    """How submissions were isolated from the machine and from each other: one of the two constants above."""
    grades: tuple[Grade, ...]
    duration_s: float = 0.0
    """Duration of the whole grading."""

    @property
    def whats(self) -> list[str]:
        """The names of the expectations in verdicts."""
        return [score.what for score in self.grades[0].scores] if self.grades else []

    @property
    def of(self) -> float:
        """The points that a submission could earn."""
        return max((grade.of for grade in self.grades), default=0.0)

    @property
    def mean(self) -> float | None:
        """The mean of the points of the graded submissions; None if none is graded."""
        points = [grade.points for grade in self.grades if grade.points is not None]
        return sum(points) / len(points) if points else None

    @property
    def verdicts(self) -> Counter[str]:
        """The number of submissions by verdict."""
        return Counter(grade.verdict for grade in self.grades)

    def to_json(self) -> dict[str, Any]:
        """Return the grades as plain data."""
        grades, duration_s = [grade.to_json() for grade in self.grades], round(self.duration_s, 3)
        return {**vars(self), "of": self.of, "mean": self.mean, "duration_s": duration_s, "grades": grades}


_MAX_SENTENCE = 600
_MAX_LINE = 200
_TRACEBACK_LINES = 20


def grade_run(name: str, result: Result, facts: RunFacts, assignment: Scenario, messages: Sequence[str] = ()) -> Grade:
    """Grade a submission that was run; `messages` are about its files rather than its run."""
    forfeit_reason = explain_forfeit(facts)
    verdict, reason, traceback = result.verdict, result.reason, ""
    if result.culprit is not None and verdict != "passed":
        lines = sanitize.sanitize_plain(result.culprit.traceback).splitlines()[-_TRACEBACK_LINES:]
        traceback = "\n".join(clip_end(line, _MAX_LINE) for line in lines)
    if forfeit_reason and verdict == "passed":
        verdict, reason = "failed", forfeit_reason
    scores = score_expectations(assignment.expect, scenario_grading(assignment), result, forfeit_reason)
    return Grade(
        name=flatten_text(name),
        verdict=verdict,
        reason=flatten_text(reason),
        scores=tuple(replace(score, messages=tuple(map(flatten_text, score.messages))) for score in scores),
        messages=tuple(map(flatten_text, messages)),
        traceback=traceback,
        forfeited=flatten_text(forfeit_reason),
        duration_s=result.duration_s or 0.0,
        path=result.path,
    )


def grade_without_run(name: str, reason: str, assignment: Scenario, verdict: Verdict) -> Grade:
    """Grade a submission that cannot be run (`failed`), or that the lab could not run (`error`)."""
    of = list_points(assignment.expect, scenario_grading(assignment))
    scores = tuple(Score(what=what, of=points) for what, points in of.items())
    return Grade(name=flatten_text(name), verdict=verdict, reason=flatten_text(reason), scores=scores)


def flatten_text(text: str) -> str:
    """Turn a sentence, parts of which may come from scripts, into one line of plain text."""
    return clip_middle(" ".join(sanitize.sanitize_plain(text).split()), _MAX_SENTENCE)


_ONLY_EXIT = "it counts only with another expectation, because a script that does nothing also ends well"
_MAX_MESSAGES = 8


def list_points(expect: Expect, grading: Grading) -> dict[str, float]:
    """Return the points for each expectation, in the order of the expectations."""
    return {what: grading.points.get(what, 1.0) for what in list_expectations(expect)}


def explain_forfeit(facts: RunFacts) -> str:
    """Return why a run earns nothing although it met expectations; empty if its points count.

    A run forfeits its points if it reached a limit, lost a node, or kept a node so busy that the lab does not know how
    its ranks ended.
    """
    attempts = (*facts.earlier, facts)
    if reached := [limit for one in attempts for limit in one.limits if limit.rank != CHECK]:
        return "; ".join(render_limits(reached))
    if lost_nodes := [lost for one in attempts for lost in one.lost_nodes]:
        return "; ".join(f"{lost.node} {lost.how}" for lost in lost_nodes)
    unreported = find_unreported_ranks(facts)
    return f"nothing reported how {name_ranks(unreported)} ended before the time limit" if unreported else ""


def find_unreported_ranks(facts: RunFacts) -> list[int]:
    """Return the ranks whose end nobody reported although their nodes are alive."""
    return [rank.rank for rank in facts.ranks if rank.started is not None and not rank.over]


def was_check_interrupted(facts: RunFacts) -> bool:
    """Return whether something else than the check itself ended it, such as the machine.

    The check took too long, could not start, crashed, or was killed, but not because its node ran out of memory; or a
    node was lost although every rank had ended.
    """
    check = facts.check
    was_interrupted = check is not None and check.code is None and not check.out_of_memory
    return was_interrupted or bool(facts.lost_nodes and all(rank.over and not rank.node_lost for rank in facts.ranks))


def score_expectations(expect: Expect, grading: Grading, result: Result, forfeit_reason: str = "") -> tuple[Score, ...]:
    """Return what a run earned by each expectation.

    An expectation earns all of its points or none: each rank that it names has to meet it. The expectation `exit`,
    which an empty script meets too, earns nothing if nothing else does.

    Args:
        expect: The expectations of the scenario.
        grading: The points for each.
        result: The result of the run.
        forfeit_reason: Why no points count, from `explain_forfeit`.
    """
    points = list_points(expect, grading)
    results: dict[str, list[Expectation]] = {what: [] for what in points}
    for one in result.expectations:
        what = "check" if one.what.startswith("check ") else one.what  # results also name its file and function
        results.get(what, []).append(one)
    met = {what: bool(matches) and all(one.met for one in matches) for what, matches in results.items()}
    if "exit" in met:  # the lab may have stopped some ranks
        asked: Collection[int] = expect.exit if expect.verdict != "passed" else [rank.rank for rank in result.ranks]
        met["exit"] = met["exit"] and {one.rank for one in results["exit"]}.issuperset(asked)
    others = [what for what in points if what != "exit" and points[what]]
    only_exit = bool(others) and not any(met[what] for what in others) and not any(expect.exit.values())
    scores = []
    for what, of in points.items():
        messages = merge_ranks(one.sentence() for one in results[what] if not one.met)[:_MAX_MESSAGES]
        if not met[what] and not messages:
            messages = [_explain_missing_result(what, result)]
        is_idle = what == "exit" and only_exit
        earns = met[what] and not forfeit_reason and not is_idle
        if met[what] and is_idle and not forfeit_reason:
            messages = [_ONLY_EXIT]
        scores.append(Score(what=what, points=of if earns else 0.0, of=of, met=met[what], messages=tuple(messages)))
    return tuple(scores)


def _explain_missing_result(what: str, result: Result) -> str:
    """Return why an expectation has no result."""
    if what == "check":
        return "the lab runs the check only after a run in which every rank ends as expected"
    stopped = [rank.rank for rank in result.ranks if rank.stopped]
    return (
        f"the lab had to stop {name_ranks(stopped)}" if what == "exit" and stopped else "the run did not get that far"
    )
