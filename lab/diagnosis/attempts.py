"""The attempts of a run whose launcher began the workers anew: what ended each, and all of it in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from lab.diagnosis.facts import RunFacts
from lab.diagnosis.finding import Judgement
from lab.record.result import Attempt
from lab.words import capital, clip_middle, format_duration, listing, name_attempts, plural

_MOST_CLAUSES = 6
_LONGEST = 160
"""Letters of what ended one attempt."""


def with_story(last: Judgement, attempts: Sequence[Attempt], used_up: str = "") -> Judgement:
    """The judgement on the last of several attempts, with what ended those before it.

    Args:
        last: the judgement.
        attempts: all of them, the last one too.
        used_up: that there could be no further attempt, see `restarts_used_up`.
    """
    earlier, restarts = attempts[:-1], plural(len(attempts) - 1, "restart")
    end = f"; {used_up}" if used_up and last.verdict != "passed" else ""
    told = [*map(_what, earlier), _what(Attempt(number=0, reason=last.reason, culprit=last.culprit))]
    if last.verdict == "passed":
        reason = f"after {restarts}: {_clauses(attempts)}; then {last.reason}"
    elif last.culprit is not None and len(set(told)) == 1:
        reason = f"in each of {len(attempts)} attempts, {last.reason}"
    else:
        reason = f"in attempt {len(earlier)}, after {restarts}, {last.reason}; before that, {_clauses(attempts)}"
    return replace(last, reason=reason + end)


def _clauses(attempts: Sequence[Attempt]) -> str:
    """What ended each attempt but the last, the same in several of them once."""
    found: dict[str, list[int]] = {}
    for attempt, following in pairwise(attempts):
        if attempt.culprit is not None or attempt.verdict != "error":
            found.setdefault(f"{_what(attempt)} in", []).append(attempt.number)
            continue
        resized = attempt.world_size != following.world_size  # not all that were to meet need have begun
        size = f" with {plural(following.world_size, 'rank')}" if resized else ""
        found.setdefault(f"the launcher began anew{size}, though nobody had failed, after", []).append(attempt.number)
    told = [f"{what} {name_attempts(numbers)}" for what, numbers in found.items()]
    more = len(told) - _MOST_CLAUSES
    return listing([*told[:_MOST_CLAUSES], f"{more} more"] if more > 1 else told)


def _what(attempt: Attempt) -> str:
    """What ended an attempt, as a clause: `rank 1 raised ValueError: no at train.py:31`."""
    culprit = attempt.culprit
    if culprit is None:
        return clip_middle(attempt.reason.partition(";")[0], _LONGEST)
    error = culprit.error.partition(";")[0].removesuffix(" in mid-run")
    named = culprit.rank is None or error.startswith((culprit.node or "rank ", f"rank {culprit.rank} ", "ranks "))
    return clip_middle(error if named else f"rank {culprit.rank} {error}", _LONGEST)


def judge_replaced(facts: RunFacts) -> Judgement | None:
    """That the launcher ended an attempt, and none of its ranks; None where one did, or where a node was lost.

    Where a node came, agents of the launcher end their workers one after the other, and some lose their peers.
    """
    failed = [rank for rank in facts.ranks if rank.failed]
    if facts.lost_nodes or not facts.restarted:
        return None
    if failed:
        from lab.diagnosis.peers import lost_a_peer

        if not (facts.came and all(map(lost_a_peer, failed))) or any(rank.left for rank in facts.ranks):
            return None
    after, came = format_duration(facts.duration_s), listing(facts.came)
    if came:
        reason = f"ended after {after}: {came} came, and the launcher began anew with it"
    else:
        reason = f"interrupted after {after}: the launcher began the workers anew, and none had failed"
    return Judgement(verdict="error", reason=reason)


def restarts_used_up(facts: RunFacts, allowed: int) -> str:
    """That a launcher could not begin anew once more, as a clause; empty where it could, or where that is not known.

    Each node counts for itself, and only attempts in which one of its own ranks had failed.
    """
    failures: dict[str, int] = {}
    for attempt in (*facts.earlier, facts):
        for node in {rank.node for rank in attempt.ranks if rank.failed}:
            failures[node] = failures.get(node, 0) + 1
    gave_up = not facts.starters or any(starter.failed for starter in facts.starters)
    if not (allowed and gave_up) or max(failures.values(), default=0) <= allowed:
        return ""
    if allowed == 1:
        return "the restart that max_restarts: 1 allows is used up"
    return f"all {allowed} restarts that max_restarts allows are used up"


def attempt_sentence(attempt: Attempt) -> str:
    """One attempt as a sentence: `Attempt 0, 3 ranks, 1.2 s: rank 1 (node1) raised ValueError` and so on."""
    took = "" if attempt.duration_s is None else f", {format_duration(attempt.duration_s)}"
    size = f", {plural(attempt.world_size, 'rank')}" if attempt.nodes else ""
    return f"{capital(name_attempts([attempt.number]))}{size}{took}: {attempt.reason.removesuffix('.')}."
