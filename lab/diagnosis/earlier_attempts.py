"""The attempts before the one that a record shows: what became of each, as findings."""

from __future__ import annotations

from lab.diagnosis.attempts import attempt_sentence
from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.finding import Finding
from lab.record.read import Record
from lab.record.result import Attempt

_MOST = 20


def tell_attempts(record: Record) -> list[Finding]:
    """What ended each of them, in order, of many the last; of a record that ends before its result as well."""
    return [_told(number, earlier) for number, earlier in [*record.earlier_attempts().items()][-_MOST:]]


def _told(number: int, record: Record) -> Finding:
    result = record.result()
    verdict, reason, culprit, duration_s = result.verdict, result.reason, result.culprit, result.duration_s
    if not record.complete:
        from lab.diagnosis.judge import judge

        evidence = read_evidence(record)
        judged = judge(evidence)
        verdict, reason, culprit = judged.verdict, judged.reason, judged.culprit
        duration_s = evidence.facts.duration_s or None
    attempt = Attempt(
        number=number,
        verdict=verdict,
        reason=reason,
        culprit=culprit,
        nodes=tuple(record.workers().values()),
        duration_s=duration_s,
    )
    blamed = () if culprit is None or culprit.rank is None else (culprit.rank,)
    return Finding(kind="attempt", sentence=attempt_sentence(attempt), ranks=blamed)
