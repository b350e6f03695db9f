"""How launchers change a verdict: attempts if one restarted the workers, and the ends of its own processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import Any

from lab.diagnosis.evidence import Evidence, Explained, Judgement, read_evidence
from lab.diagnosis.facts import RunFacts
from lab.diagnosis.finding import Finding, Kind, Words
from lab.diagnosis.judge import judge_evidence
from lab.record.layout import LOGS, launcher_log
from lab.record.read import Record
from lab.record.record_files import read_tail
from lab.record.result import Attempt, Culprit
from lab.words import clip_end, clip_middle, format_count, format_duration, join_words, name_attempts

_MOST = 20
"""Most earlier attempts that an explanation shows."""
_LONGEST = 160
_MOST_CLAUSES = 6


def with_attempts(last: Judgement, attempts: Sequence[Attempt], facts: RunFacts, max_restarts: int) -> Judgement:
    """Add to the judgement of the last attempt what ended the earlier ones.

    Args:
        last: The judgement.
        attempts: All of them, including the last.
        facts: Of the run.
        max_restarts: How often its launcher may restart the workers.
    """
    restarts = format_count(len(attempts) - 1, "restart")
    if last.verdict == "passed":
        return replace(last, reason=f"after {restarts}: {_ends(attempts)}; then {last.reason}")
    end = ""
    if _are_used_up(facts, max_restarts):
        end = f"; the launcher used all {max_restarts} restarts (max_restarts)"
        end = "; the launcher used its only restart (max_restarts: 1)" if max_restarts == 1 else end
    reason = f"in attempt {len(attempts) - 1}, after {restarts}, {last.reason}; before that, {_ends(attempts)}"
    same = {*map(_end_of, attempts[:-1]), clip_middle(last.summary or last.reason, _LONGEST)}
    if last.culprit is not None and len(same) == 1:
        reason = f"in each of {len(attempts)} attempts, {last.reason}"
    return replace(last, reason=reason + end)


def _are_used_up(facts: RunFacts, max_restarts: int) -> bool:
    """Return whether a launcher has no restart left.

    Each node counts only attempts in which one of its own ranks failed.
    """
    attempts = (*facts.earlier, facts)
    failures = Counter(node for one in attempts for node in {rank.node for rank in one.ranks if rank.failed})
    has_stopped = not facts.starters or any(starter.failed for starter in facts.starters)
    return bool(max_restarts) and has_stopped and max(failures.values(), default=0) > max_restarts


def _ends(attempts: Sequence[Attempt]) -> str:
    """Describe what ended each attempt but the last, and combine equal causes."""
    numbers: dict[str, list[int]] = {}
    for attempt, following in pairwise(attempts):
        what = f"{_end_of(attempt)} in"
        if attempt.culprit is None and attempt.verdict == "error":
            resized = attempt.world_size != following.world_size  # fewer ranks than expected may have started
            size = f" with {format_count(following.world_size, 'rank')}" if resized else ""
            what = f"the launcher restarted the workers{size}, though no rank had failed, after"
        numbers.setdefault(what, []).append(attempt.number)
    clauses = [f"{what} {name_attempts(ours)}" for what, ours in numbers.items()]
    hidden_count = len(clauses) - _MOST_CLAUSES
    return join_words([*clauses[:_MOST_CLAUSES], f"{hidden_count} more"] if hidden_count > 1 else clauses)


def _end_of(attempt: Attempt) -> str:
    """Describe what ended an attempt, as a clause: `rank 1 raised ValueError: no at train.py:31`."""
    return clip_middle(attempt.summary or attempt.reason, _LONGEST)


# -- findings


class LauncherKind(Kind):
    """The kinds of findings of this feature."""

    LAUNCHER = "launcher", 0, "ends"
    ATTEMPT = "attempt", 2


class AttemptEnded(Finding):
    """What ended an attempt before the one that a record shows."""

    kind: Kind = LauncherKind.ATTEMPT
    number: int
    world_size: int = 0
    reason: str = ""

    def render(self) -> Words:
        """Render the attempt's number, its size, and what ended it."""
        took = "" if self.seconds is None else f", {format_duration(self.seconds)}"
        size = f", {format_count(self.world_size, 'rank')}" if self.world_size else ""
        return f"attempt {self.number}{size}{took}: {self.reason.removesuffix('.')}"


def explain_attempts(run: Explained) -> list[Finding]:
    """Explain what ended the earlier attempts, in order; of many, the last ones."""
    earlier = [*run.evidence.record.earlier_attempts().items()]
    return [_attempt_ended(number, record) for number, record in earlier[-_MOST:]]


def _attempt_ended(number: int, record: Record) -> Finding:
    """Return what ended an attempt, also if its record ends before its result."""
    result = record.result()
    reason, culprit, duration_s = result.reason, result.culprit, result.duration_s
    if not record.complete:
        evidence = read_evidence(record)
        judged = judge_evidence(evidence)
        reason, culprit, duration_s = judged.reason, judged.culprit, evidence.facts.duration_s or None
    ranks = () if culprit is None or culprit.rank is None else (culprit.rank,)
    size = len(record.workers())
    return AttemptEnded(number=number, world_size=size, reason=reason, ranks=ranks, seconds=duration_s)


# -- failures of launchers' own processes

_TAIL_BYTES = 16384
"""Bytes of a launcher's log that are read for its last line."""
_LONGEST_LAST_WORDS = 300


class LauncherEnded(Finding):
    """A launcher that failed, or started no rank, although no rank failed."""

    kind: Kind = LauncherKind.LAUNCHER
    nodes: tuple[str, ...]
    failed: bool = False
    signal: str = ""
    code: int | None = None
    begun: bool = False
    """Whether ranks had started."""
    last_line: str = field(default="", metadata={"key": "said"})

    def render(self) -> Words:
        """Render how it ended, and its last line."""
        last_line = f": {clip_end(self.last_line, _LONGEST_LAST_WORDS)}" if self.last_line else ""
        if not self.failed:
            return f"the launchers on {join_words(self.nodes)} had not started any rank{last_line}"
        ended = f"was killed by {self.signal}" if self.signal else f"ended with code {self.code}"
        when = "though no rank had failed" if self.begun else "before any rank had started"
        return f"the launcher on {self.nodes[0]} {ended}, {when}{last_line}"


def judge_starters(evidence: Evidence) -> Judgement | None:
    """Judge a run in which no rank failed by the launchers' own processes; None if they are not the cause."""
    facts = evidence.facts
    failed = sorted((one for one in facts.starters if one.failed), key=lambda one: one.ended or 0.0)
    begun = any(rank.started is not None for rank in facts.ranks)
    if not failed and (not facts.timed_out or begun):
        return None
    first = failed[0] if failed else facts.starters[0]
    nodes = (first.node,) if failed else tuple(starter.node for starter in facts.starters)
    how: dict[str, Any] = {"failed": True, "signal": first.signal or "", "code": first.code} if failed else {}
    printed = read_tail(evidence.record.path / LOGS / launcher_log(first.node), _TAIL_BYTES)
    finding = LauncherEnded(nodes=nodes, begun=begun, last_line=printed[-1].strip() if printed else "", **how)
    reason = finding.headline if failed else f"the run did not end within {facts.time_limit_text}: {finding.headline}"
    if not failed:
        return Judgement(verdict="hung", reason=reason, findings=(finding,))
    culprit = Culprit(node=first.node, error=reason)
    return Judgement(verdict="failed", reason=reason, culprit=culprit, findings=(finding,), summary=reason)
