"""The attempts of a run whose launcher began the workers anew: what ended each, and what that makes of the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from lab.diagnosis.evidence import Judgement, read_evidence
from lab.diagnosis.facts import RunFacts
from lab.diagnosis.finding import Facts, Finding, Kind, Words, WordTable
from lab.diagnosis.judge import judge
from lab.diagnosis.rules import Explained
from lab.record.read import Record
from lab.record.result import Attempt
from lab.words import clip_middle, format_duration, listing, name_attempts, plural

_MOST = 20
"""Earlier attempts of which an explanation tells."""
_LONGEST = 160
_MOST_CLAUSES = 6


def with_attempts(last: Judgement, attempts: Sequence[Attempt], facts: RunFacts, max_restarts: int) -> Judgement:
    """The judgement on the last of several attempts, with what ended those before it.

    Args:
        last: the judgement.
        attempts: all of them, the last one too.
        facts: of the run.
        max_restarts: how often its launcher may begin the workers anew.
    """
    restarts = plural(len(attempts) - 1, "restart")
    if last.verdict == "passed":
        return replace(last, reason=f"after {restarts}: {_ends(attempts)}; then {last.reason}")
    end = ""
    if _are_used_up(facts, max_restarts):
        end = f"; all {max_restarts} restarts that max_restarts allows are used up"
        end = "; the restart that max_restarts: 1 allows is used up" if max_restarts == 1 else end
    reason = f"in attempt {len(attempts) - 1}, after {restarts}, {last.reason}; before that, {_ends(attempts)}"
    same = {*map(_end_of, attempts[:-1]), clip_middle(last.summary or last.reason, _LONGEST)}
    if last.culprit is not None and len(same) == 1:
        reason = f"in each of {len(attempts)} attempts, {last.reason}"
    return replace(last, reason=reason + end)


def _are_used_up(facts: RunFacts, max_restarts: int) -> bool:
    """Whether a launcher could not begin anew once more.

    Each node counts for itself, and only attempts in which one of its own ranks had failed.
    """
    attempts = (*facts.earlier, facts)
    failures = Counter(node for one in attempts for node in {rank.node for rank in one.ranks if rank.failed})
    gave_up = not facts.starters or any(starter.failed for starter in facts.starters)
    return bool(max_restarts) and gave_up and max(failures.values(), default=0) > max_restarts


def _ends(attempts: Sequence[Attempt]) -> str:
    """What ended each attempt but the last, the same in several of them once."""
    numbers: dict[str, list[int]] = {}
    for attempt, following in pairwise(attempts):
        what = f"{_end_of(attempt)} in"
        if attempt.culprit is None and attempt.verdict == "error":
            resized = attempt.world_size != following.world_size  # not all that were to meet need have begun
            size = f" with {plural(following.world_size, 'rank')}" if resized else ""
            what = f"the launcher began anew{size}, though nobody had failed, after"
        numbers.setdefault(what, []).append(attempt.number)
    clauses = [f"{what} {name_attempts(ours)}" for what, ours in numbers.items()]
    more = len(clauses) - _MOST_CLAUSES
    return listing([*clauses[:_MOST_CLAUSES], f"{more} more"] if more > 1 else clauses)


def _end_of(attempt: Attempt) -> str:
    """What ended an attempt, as a clause: `rank 1 raised ValueError: no at train.py:31`."""
    return clip_middle(attempt.summary or attempt.reason, _LONGEST)


# -- findings


class AttemptKind(Kind):
    """The kinds of findings of this feature."""

    ATTEMPT = "attempt", 2


class AttemptEnded(Facts):
    """What ended an attempt before the one that a record shows."""

    number: int
    world_size: int = 0
    reason: str = ""


def explain_attempts(run: Explained) -> list[Finding]:
    """What ended each attempt before the one that a record shows, in order, of many the last."""
    earlier = [*run.evidence.record.earlier_attempts().items()]
    return [_attempt_ended(number, record) for number, record in earlier[-_MOST:]]


def _attempt_ended(number: int, record: Record) -> Finding:
    """What ended an attempt; of a record that ends before its result as well."""
    result = record.result()
    reason, culprit, duration_s = result.reason, result.culprit, result.duration_s
    if not record.complete:
        evidence = read_evidence(record)
        judged = judge(evidence)
        reason, culprit, duration_s = judged.reason, judged.culprit, evidence.facts.duration_s or None
    ranks = () if culprit is None or culprit.rank is None else (culprit.rank,)
    size = len(record.workers())
    facts = AttemptEnded(number=number, world_size=size, reason=reason, ranks=ranks, seconds=duration_s)
    return facts.as_finding(AttemptKind.ATTEMPT)


def _render(facts: AttemptEnded) -> Words:
    took = "" if facts.seconds is None else f", {format_duration(facts.seconds)}"
    size = f", {plural(facts.world_size, 'rank')}" if facts.world_size else ""
    return f"attempt {facts.number}{size}{took}: {facts.reason.removesuffix('.')}"


WORDS: WordTable = {AttemptEnded: _render}
