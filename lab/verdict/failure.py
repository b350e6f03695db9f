"""Findings about a run that failed: who was first, and what that did to the others."""

from __future__ import annotations

from collections.abc import Sequence

from lab.trace.model import Call
from lab.trace.steps import Step
from lab.verdict.evidence import Evidence, RankEnd
from lab.verdict.finding import Finding
from lab.verdict.waits import how_it_failed
from lab.words import capital, listing, name_ranks, plural, was


def explain_failure(evidence: Evidence, culprit: int | None) -> list[Finding]:
    """Who failed first, and in which calls that found the others.

    Args:
        evidence: of the run.
        culprit: the rank that the verdict names; None where it names none: then the earliest that failed.
    """
    first = evidence.ends.get(culprit) if culprit is not None else _earliest(evidence)
    if first is None:
        return []
    hit = _hit(evidence, first)
    met = next((step for step, _ in hit), None)
    alone = _alone_in(evidence, first)
    if alone is not None:
        return [_went_alone(evidence, first, alone)]
    who = f"rank {first.rank}{f' ({first.node})' if first.node else ''}"
    if first.lost:
        head, kind = f"rank {first.rank}'s node, {first.node}, went away", "failed"
    elif first.left:
        head, kind = f"{who} ended with code 0", "left_early"
    elif first.failed:
        head, kind = f"{who} {how_it_failed(first)}", "failed"
    elif first.place is not None:
        head, kind = f"{who} was {first.place.sentence()} and no longer with the others", "left_early"
    else:
        return []
    sentence = f"{capital(head)}, {_last_call(evidence, first)}." if evidence.traced else f"{capital(head)}."
    sentence += "".join(f" {capital(_found(step, calls))}." for step, calls in hit[:3])
    others = tuple(sorted(call.rank for _, calls in hit for call in calls))
    lines = [f"{first.place.file}:{first.place.line}"] if first.place is not None else []
    lines += [call.source for call in evidence.calls(first.rank)[-1:] if not lines]
    lines += [call.source for _, calls in hit for call in calls]
    return [
        Finding(
            kind=kind,
            sentence=sentence,
            ranks=(first.rank,),
            others=others,
            step=met.title if met is not None else "",
            lines=tuple(line for line in dict.fromkeys(lines) if line),
        )
    ]


def _earliest(evidence: Evidence) -> RankEnd | None:
    failed = [end for end in evidence.ends.values() if end.failed or end.lost]
    return min(failed, key=lambda end: end.raised or end.ended or float("inf"), default=None)


def _broken(evidence: Evidence, rank: int) -> Call | None:
    """The first call that failed or never ended, of a rank that ended otherwise than with code 0."""
    end = evidence.ends.get(rank)
    if end is not None and end.left:
        return None
    return next((call for call in evidence.calls(rank) if call.state != "completed"), None)


def _hit(evidence: Evidence, first: RankEnd) -> list[tuple[Step, list[Call]]]:
    """The steps in which the end of one rank found others."""
    by_step: dict[int, list[Call]] = {}
    steps: dict[int, Step] = {}
    for rank in evidence.ends:
        call = _broken(evidence, rank) if rank != first.rank else None
        step = evidence.step(call) if call is not None else None
        if call is not None and step is not None:
            steps[step.number] = step
            by_step.setdefault(step.number, []).append(call)
    return [(steps[number], calls) for number, calls in sorted(by_step.items(), key=lambda item: -len(item[1]))]


def _found(step: Step, calls: Sequence[Call]) -> str:
    ranks = [call.rank for call in calls]
    lines = listing(call.source for call in calls)
    what = step.title if not step.message else f"{calls[0].op} ({step.title})"
    lost = " and failed there" if any(call.error for call in calls) else ""
    return f"{name_ranks(ranks)} {was(ranks)} in {what}{f' at {lines}' if lines else ''}{lost}"


def _last_call(evidence: Evidence, end: RankEnd) -> str:
    """Where in its calls a rank ended: `after 2 calls, the last of them all_reduce #2 at train.py:9`."""
    calls = evidence.calls(end.rank)
    if not calls:
        return "before its first call"
    last = calls[-1]
    step = evidence.step(last)
    title = step.title if step is not None and (step.op == last.op or step.message) else f"{last.op} #{last.seq}"
    where = f"{title} at {last.source}" if last.source else title
    if last.state != "completed":
        return f"in {where}"
    return f"after {plural(len(calls), 'call')}, the last of them {where}"


def _alone_in(evidence: Evidence, first: RankEnd) -> tuple[Call, Step] | None:
    """The call that a rank failed in because all whom it needed there had ended with code 0."""
    if not first.failed:
        return None
    call = next((call for call in evidence.calls(first.rank) if call.state != "completed"), None)
    step = evidence.step(call) if call is not None else None
    if call is None or step is None or not step.missing:
        return None
    gone = [rank for rank in step.missing if rank in evidence.ends and evidence.ends[rank].left]
    return (call, step) if len(gone) == len(step.missing) and len(gone) > len(step.calls) else None


def _went_alone(evidence: Evidence, first: RankEnd, alone: tuple[Call, Step]) -> Finding:
    call, step = alone
    gone = step.missing
    ended = {_last_call(evidence, evidence.ends[rank]) for rank in gone}
    at = f" at {call.source}" if call.source else ""
    how = f" {next(iter(ended))}" if len(ended) == 1 else ""
    sentence = (
        f"Rank {first.rank}{f' ({first.node})' if first.node else ''} went on alone: it called {step.title}{at}, which "
        f"{name_ranks(gone)} never {'called' if not step.message else 'answered'}; they had ended with code 0{how}."
    )
    lines = (call.source, *(calls[-1].source for rank in gone if (calls := evidence.calls(rank))))
    return Finding(
        kind="went_alone",
        sentence=sentence,
        ranks=(first.rank,),
        others=gone,
        step=step.title,
        lines=tuple(line for line in dict.fromkeys(lines) if line),
    )
