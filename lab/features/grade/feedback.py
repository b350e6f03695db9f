"""What whoever handed something in is told of it, in the words of the verdict. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lab.diagnosis.facts import RunFacts
from lab.features.grade.grades import Grade
from lab.features.grade.keys import grading_of
from lab.features.grade.points import forfeited, nothing, scores
from lab.record.result import Result
from lab.report import harmless
from lab.spec.scenario import Scenario, Verdict
from lab.words import clip, clip_middle

_LONGEST = 600
_LONGEST_LINE = 200
_TRACEBACK_LINES = 20


def grade_of(name: str, result: Result, facts: RunFacts, assignment: Scenario, told: Sequence[str] = ()) -> Grade:
    """The grade of a submission that was run; `told` is what there is to say of it beside its run."""
    why_not = forfeited(facts)
    culprit = result.culprit
    verdict, reason = result.verdict, result.reason
    if why_not and verdict == "passed":
        verdict, reason = "failed", why_not
    earned = scores(assignment.expect, grading_of(assignment), result, why_not)
    return Grade(
        name=plain(name),
        verdict=verdict,
        reason=plain(reason),
        scores=tuple(replace(score, told=tuple(map(plain, score.told))) for score in earned),
        told=tuple(map(plain, told)),
        traceback=_last_lines(culprit.traceback) if culprit is not None and verdict != "passed" else "",
        forfeited=plain(why_not),
        duration_s=result.duration_s or 0.0,
        path=result.path,
    )


def refused(name: str, why: str, assignment: Scenario) -> Grade:
    """The grade of a submission that cannot be run."""
    return _without_run(name, "failed", why, assignment)


def not_graded(name: str, why: str, assignment: Scenario) -> Grade:
    """What is said of a submission that the lab could not run."""
    return _without_run(name, "error", why, assignment)


def _without_run(name: str, verdict: Verdict, why: str, assignment: Scenario) -> Grade:
    scores = nothing(assignment.expect, grading_of(assignment))
    return Grade(name=plain(name), verdict=verdict, reason=plain(why), scores=scores, path=None)


def plain(text: str) -> str:
    """A sentence, parts of which may come from scripts, as one line of plain text."""
    return clip_middle(" ".join(harmless.plain(text).split()), _LONGEST)


def _last_lines(traceback: str) -> str:
    lines = harmless.plain(traceback).splitlines()[-_TRACEBACK_LINES:]
    return "\n".join(clip(line, _LONGEST_LINE) for line in lines)
