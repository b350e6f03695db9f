"""Holds what the lab said of a program against what is true of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.diagnosis.finding import Finding
from tests.diagnosis.programs import Program

_NEUTRAL = re.compile(r"time|account|ddp_\w+")
"""Kinds of findings that accuse nobody and speak of no fault."""
_WHO = r"\b[Rr]anks? (?P<who>\d[\d, -]*(?:and \d+)?)"
_NEVER_ENTERED = re.compile(rf"{_WHO} never entered (?P<what>[^.;:]+)")
_WAITED_IN = re.compile(rf"{_WHO} waited in (?P<what>.+?)(?= at |[.;,]|$)")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the lab said of a run."""

    verdict: str
    reason: str
    culprit: int | None
    findings: Sequence[Finding]
    """Those of the explanation, in its order."""
    seconds: float = 0.0

    @property
    def serious(self) -> list[Finding]:
        """The findings that speak of a fault."""
        return [finding for finding in self.findings if not _NEUTRAL.fullmatch(finding.kind)]

    @property
    def said(self) -> str:
        return "\n".join([self.reason, *(finding.sentence for finding in self.findings)])


@dataclass(frozen=True, kw_only=True)
class Mark:
    """How right an answer is."""

    kind: bool
    rank: bool
    line: bool
    accused: tuple[int, ...] = ()
    """Innocent ranks that were named."""
    false: tuple[str, ...] = ()
    """What was said and is not so."""
    seconds: float = 0.0
    answer: Mapping[str, Any] = field(default_factory=dict)
    """What was said, in short."""

    @property
    def right(self) -> bool:
        return self.kind and self.rank and self.line and not self.accused and not self.false


def mark(program: Program, answer: Answer) -> Mark:
    """Mark an answer."""
    return _mark_legal(program, answer) if program.legal else _mark_broken(program, answer)


def _mark_broken(program: Program, answer: Answer) -> Mark:
    first = answer.serious[0] if answer.serious else None
    unsaid = [pattern for pattern in program.says if not re.search(pattern, answer.said)]
    accused = {rank for finding in answer.serious for rank in finding.ranks} | ({answer.culprit} - {None})
    return Mark(
        kind=first is not None and first.kind in program.kinds and not unsaid,
        rank=first is not None and _right_rank(program, answer, first),
        line=first is not None and _right_line(program, first),
        accused=tuple(sorted(accused & program.innocent)),
        false=tuple(_false(program, answer)),
        seconds=answer.seconds,
        answer=say_in_short(answer),
    )


def _mark_legal(program: Program, answer: Answer) -> Mark:
    wrong = [] if answer.verdict == "passed" else [f"{answer.verdict}: {answer.reason}"]
    wrong += [finding.sentence for finding in answer.serious if finding.kind not in program.allowed]
    wrong += _false(program, answer)
    return Mark(
        kind=not wrong,
        rank=not wrong,
        line=not wrong,
        false=tuple(wrong),
        seconds=answer.seconds,
        answer=say_in_short(answer),
    )


def _right_rank(program: Program, answer: Answer, first: Finding) -> bool:
    """Whether the first finding and the verdict name who did it; a run that passed has no culprit."""
    if frozenset(first.ranks) not in program.culprits:
        return False
    if answer.culprit is None:
        return answer.verdict == "passed" or frozenset() in program.culprits or not first.ranks
    return any(answer.culprit in ranks for ranks in program.culprits)


def _right_line(program: Program, first: Finding) -> bool:
    named = first.lines[:1] if first.ranks else first.lines
    everywhere = " ".join((first.sentence, *first.lines))
    return any(line in named for line in program.causes) and all(
        re.search(rf"{re.escape(line)}\b", everywhere) for line in program.also
    )


def _false(program: Program, answer: Answer) -> list[str]:
    found = [
        f"said {pattern!r}: {sentence}"
        for pattern in program.never
        for sentence in answer.said.splitlines()
        if re.search(pattern, sentence)
    ]
    return list(dict.fromkeys([*found, *waited_and_never_entered(answer)]))


def waited_and_never_entered(answer: Answer) -> list[str]:
    """What cannot be true: a rank that never entered a step and waited in it."""
    waited = {(rank, match["what"].strip()) for match in _WAITED_IN.finditer(answer.said) for rank in _each(match)}
    return [
        f"rank {rank} never entered {match['what'].strip()}, and waited in it"
        for match in _NEVER_ENTERED.finditer(answer.said)
        for rank in _each(match)
        if (rank, match["what"].strip()) in waited
    ]


def _each(match: re.Match[str]) -> Iterable[int]:
    """The numbers of `0, 2 and 4-6`."""
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", match["who"]):
        yield from range(int(first), int(last or first) + 1)


def say_in_short(answer: Answer) -> dict[str, Any]:
    """What was said, as plain data."""
    return {
        "verdict": answer.verdict,
        "culprit": answer.culprit,
        "reason": answer.reason,
        "findings": [
            {"kind": str(one.kind), "ranks": [*one.ranks], "lines": [*one.lines], "sentence": one.sentence}
            for one in answer.serious
        ],
    }


def figures(programs: Iterable[Program], marks: Mapping[str, Mark]) -> dict[str, int]:
    """The figures of a score."""
    both = [(program, marks[program.name]) for program in programs if program.name in marks]
    broken = [one for program, one in both if not program.legal]
    legal = [one for program, one in both if program.legal]
    return {
        "broken": len(broken),
        "right kind": sum(one.kind for one in broken),
        "right rank": sum(one.rank for one in broken),
        "right line": sum(one.line for one in broken),
        "innocents accused": sum(len(one.accused) for one in broken),
        "legal": len(legal),
        "legal without a false statement": sum(one.right for one in legal),
        "false statements": sum(len(one.false) for _, one in both),
    }
