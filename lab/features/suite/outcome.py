"""What came of the cases of a suite. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from lab.errors import EngineUnavailable, Interrupted
from lab.features.suite.case import Case
from lab.record.read import Record
from lab.record.result import Result

Status = Literal["passed", "flaky", "failed", "hung", "error", "skipped"]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One run of a case, or what kept it from beginning."""

    result: Result
    hint: str = ""
    """What to do about an error."""
    took_s: float = 0.0
    """Seconds with all that belongs to it, but for making its cluster."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one case."""

    case: Case
    attempts: tuple[Attempt, ...] = ()
    """All but the last failed; empty where it cannot run."""

    @property
    def status(self) -> Status:
        """The last verdict; `flaky` where it passed only when it was tried again."""
        if not self.attempts:
            return "skipped"
        verdict = self.attempts[-1].result.verdict
        return "flaky" if verdict == "passed" and len(self.attempts) > 1 else verdict

    @property
    def telling(self) -> Attempt:
        """The attempt that says most: the last, or of one that is flaky the last that failed."""
        return self.attempts[-2] if self.status == "flaky" else self.attempts[-1]

    @property
    def good(self) -> bool:
        """Whether nothing has to be done about it."""
        return self.status in ("passed", "skipped")

    @property
    def exit_code(self) -> int:
        """That of the last attempt."""
        return self.attempts[-1].result.exit_code if self.attempts else 0

    @property
    def took_s(self) -> float:
        """Seconds of all attempts."""
        return sum(attempt.took_s for attempt in self.attempts)

    @property
    def reason(self) -> str:
        """Why it is not simply passed, or how it passed, in one sentence."""
        if not self.attempts:
            return self.case.skipped
        reason = self.telling.result.reason
        if self.status == "flaky":
            return f"passed at attempt {len(self.attempts)}; before: {reason}"
        return reason

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain data."""
        case, last = self.case, self.attempts[-1].result if self.attempts else None
        return {
            "kind": "outcome",
            "id": case.id,
            "scenario": case.scenario.name,
            "status": self.status,
            "reason": self.reason,
            "exit_code": self.exit_code,
            "nodes": case.nodes,
            "nproc_per_node": case.nproc_per_node,
            "image": case.scenario.image,
            "backend": case.backend or case.scenario.backend,
            "seed": case.seed,
            "repetition": case.repetition,
            "took_s": round(self.took_s, 6),
            "record": str(last.path) if last is not None and last.path is not None else None,
            "attempts": [_attempt_json(attempt) for attempt in self.attempts],
        }


def _attempt_json(attempt: Attempt) -> dict[str, Any]:
    result = attempt.result
    culprit = result.culprit
    return {
        "verdict": result.verdict,
        "reason": result.reason,
        "hint": attempt.hint,
        "culprit": {"rank": culprit.rank, "node": culprit.node, "error": culprit.error} if culprit else None,
        "exit_code": result.exit_code,
        "duration_s": result.duration_s,
        "took_s": round(attempt.took_s, 6),
        "run": result.run,
        "record": str(result.path) if result.path is not None else None,
    }


@dataclass(frozen=True, kw_only=True)
class SuiteResult:
    """What came of a suite."""

    suite: str
    """Its name, which the records of its runs bear."""
    outcomes: tuple[Outcome, ...]
    """Of the cases that ran or cannot, in the order of the cases."""
    planned: int
    """How many cases there were to be."""
    clusters: int = 0
    """How many there were side by side."""
    duration_s: float = 0.0
    seed: int | None = None
    stopped: str = ""
    """Why the rest did not run; empty where all did."""
    stop_code: int = 0
    """The exit code of what stopped it: 130 interrupted, 3 no engine."""

    @property
    def counts(self) -> dict[str, int]:
        """How many came to each status; without those that none came to."""
        count = Counter[str](outcome.status for outcome in self.outcomes)
        return {status: count[status] for status in STATUSES if count[status]}

    @property
    def not_run(self) -> int:
        """How many cases did not run although they could."""
        return self.planned - len(self.outcomes)

    @property
    def bad(self) -> Sequence[Outcome]:
        """The outcomes about which something has to be done; those that are flaky are among them."""
        return [outcome for outcome in self.outcomes if not outcome.good]

    @property
    def told_one_by_one(self) -> Sequence[Outcome]:
        """The bad ones, but for those of a suite that repeats: their rates tell."""
        return () if self.repeated else self.bad

    @property
    def records(self) -> list[Record]:
        """Of each case that ran, the record of the last attempt."""
        last = [outcome.attempts[-1].result.path for outcome in self.outcomes if outcome.attempts]
        return [Record(path=path) for path in last if path is not None]

    @property
    def exit_code(self) -> int:
        """The worst of all, which is the highest; a case that is flaky or was skipped counts as passed."""
        return max((self.stop_code, *(outcome.exit_code for outcome in self.outcomes)))

    @property
    def repeated(self) -> bool:
        """Whether cases ran more than once."""
        return any(outcome.case.repetitions > 1 for outcome in self.outcomes)

    def to_json(self) -> dict[str, Any]:
        """The summary as plain data."""
        from lab.features.suite.flakiness import rates

        return {
            "kind": "summary",
            "suite": self.suite,
            "exit_code": self.exit_code,
            "counts": dict(self.counts),
            "planned": self.planned,
            "not_run": self.not_run,
            "stopped": self.stopped,
            "clusters": self.clusters,
            "seed": self.seed,
            "duration_s": round(self.duration_s, 6),
            "rates": [rate.to_json() for rate in rates(self.outcomes)] if self.repeated else [],
        }


def interrupted(outcome: Outcome) -> bool:
    """Whether a case was broken off because somebody pressed Ctrl-C: it says nothing of the case."""
    return outcome.exit_code == Interrupted.exit_code


def without_engine(outcome: Outcome) -> bool:
    """Whether a case could not run because no engine answered."""
    return outcome.exit_code == EngineUnavailable.exit_code
