"""What a submission earned: what its run met of what the scenario expects. Pure."""

from __future__ import annotations

from collections.abc import Collection

from lab.diagnosis.facts import RunFacts
from lab.diagnosis.limits import limits_told
from lab.features.grade.grades import Score
from lab.features.grade.keys import Grading
from lab.node.messages.agent import CHECK
from lab.record.result import Expectation, Result
from lab.spec.scenario import Expect
from lab.words import name_ranks

_EXIT_ALONE = "it counts only beside something else that is right: a script that does nothing ends well too"
_MOST_TOLD = 8


def worth(expect: Expect, grading: Grading) -> dict[str, float]:
    """What each expectation is worth, in their order."""
    return {what: grading.points.get(what, 1.0) for what in expect.graded}


def forfeited(facts: RunFacts) -> str:
    """Why nothing that a run produced counts; empty where it counts.

    It reached a limit, cost a node, or kept it so busy that nobody heard how its ranks ended: whatever it did besides,
    it was not what was asked for.
    """
    attempts = (*facts.earlier, facts)
    limits = [limit for one in attempts for limit in one.limits]
    reached = [limit for limit in limits if limit.rank != CHECK]
    if reached:
        return "; ".join(limits_told(reached))
    lost_nodes = [lost for one in attempts for lost in one.lost_nodes]
    if lost_nodes:
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
    met = {what: _is_met(what, expect, result) for what in points}
    others = [what for what in points if what != "exit" and points[what]]
    alone = bool(others) and not any(met[what] for what in others) and not any(expect.exit.values())
    found = []
    for what, of in points.items():
        told = [one.sentence() for one in _about(what, result.expectations) if not one.met][:_MOST_TOLD]
        if not met[what] and not told:
            told = [_unasked(what, result)]
        earns = met[what] and not why_not and not (what == "exit" and alone)
        if met[what] and what == "exit" and alone and not why_not:
            told = [_EXIT_ALONE]
        found.append(Score(what=what, points=of if earns else 0.0, of=of, met=met[what], told=tuple(told)))
    return tuple(found)


def nothing(expect: Expect, grading: Grading) -> tuple[Score, ...]:
    """The scores of what was not run."""
    return tuple(Score(what=what, of=of) for what, of in worth(expect, grading).items())


def _is_met(what: str, expect: Expect, result: Result) -> bool:
    found = _about(what, result.expectations)
    if what == "exit":
        asked: Collection[int] = expect.exit if expect.verdict != "passed" else [rank.rank for rank in result.ranks]
        if {one.rank for one in found} < set(asked):  # the lab stopped some
            return False
    return bool(found) and all(one.met for one in found)


def _about(what: str, expectations: Collection[Expectation]) -> list[Expectation]:
    """What a result says of an expectation; it calls a check by its file and function too."""
    return [one for one in expectations if one.what == what or (what == "check" and one.what.startswith("check "))]


def _unasked(what: str, result: Result) -> str:
    """Why nothing was found about an expectation."""
    if what == "check":
        return "the check is made only of a run in which every rank ends as expected"
    stopped = [rank.rank for rank in result.ranks if rank.stopped]
    if what == "exit" and stopped:
        return f"{name_ranks(stopped)} had to be stopped"
    return "the run did not come to it"
