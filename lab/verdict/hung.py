"""The verdict on a run that did not end: where every rank was, and which one did not come."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lab.record.result import Culprit
from lab.verdict.facts import RankFacts, RunFacts
from lab.verdict.judgement import Context, Judgement, head, went_alone
from lab.verdict.stacks import Place, find_place
from lab.words import format_duration, name_ranks

if TYPE_CHECKING:
    from lab.verdict.finding import Finding


def judge_hang(facts: RunFacts, context: Context) -> Judgement:
    """Say who was waited for."""
    from lab.verdict.traced import cause_of_hang  # not at the start: a run that passes needs none of it

    places = {rank.rank: find_place(rank.stack, context.folder) for rank in facts.ranks if rank.stack}
    waiting = [rank for rank in facts.ranks if (place := places.get(rank.rank)) is not None and place.call]
    absent = [rank for rank in facts.ranks if rank.ended is None or rank.stopped]
    absent = [rank for rank in absent if rank not in waiting]
    gone = sorted((r for r in facts.ranks if r.ended is not None and not r.stopped), key=lambda r: r.ended or 0.0)
    culprit, error = _culprit(waiting, absent, gone, places)
    story = "; ".join(_phrases(waiting, absent, gone, places))
    cause = cause_of_hang(context)
    if cause is not None and _tells_more(cause, culprit):
        culprit, error = next((rank for rank in facts.ranks if rank.rank in cause.ranks), None), cause.headline
        story = f"{cause.headline}; {story}"
    reason = f"no end after {format_duration(facts.timeout_s)}: {story}"
    if culprit is None:
        return Judgement(verdict="hung", reason=reason)
    return Judgement(
        verdict="hung",
        reason=reason,
        culprit=Culprit(rank=culprit.rank, node=culprit.node, error=error, traceback=head(culprit.stack)),
    )


def _tells_more(cause: Finding, culprit: RankFacts | None) -> bool:
    """Whether the trace blames somebody else than the stacks do, or knows that nobody can be blamed."""
    from lab.verdict.traced import NOBODYS_FAULT

    if cause.ranks:
        return culprit is None or culprit.rank not in cause.ranks
    return cause.kind in NOBODYS_FAULT


def _culprit(
    waiting: list[RankFacts], absent: list[RankFacts], gone: list[RankFacts], places: dict[int, Place | None]
) -> tuple[RankFacts | None, str]:
    if absent:
        place = places.get(absent[0].rank)
        where = place.sentence() if place else "in code without a Python stack"
        missed = "did not come to the collective that others waited in, it " if waiting else ""
        return absent[0], f"{missed}was {where}"
    if len(gone) > len(waiting):
        place = places[waiting[0].rank] if waiting else None
        return (waiting[0], went_alone(place, [rank.rank for rank in gone])) if waiting else (None, "")
    if gone and waiting:
        return gone[0], "exited early, with code 0, while others waited for it"
    calls = Counter((place.call, place.file, place.line) for rank in waiting if (place := places[rank.rank]))
    if len(calls) > 1:
        common, count = calls.most_common(1)[0]
        if 2 * count <= len(waiting):
            return None, ""  # no majority: whose call is the wrong one cannot be told from where they stand
        odd = next(rank for rank in waiting if _key(places[rank.rank]) != common)
        place = places[odd.rank]
        assert place is not None
        return odd, f"was {place.sentence()} while others were in {common[0]} at {common[1]}:{common[2]}"
    return None, ""


def _key(place: Place | None) -> tuple[str, str, int]:
    return (place.call, place.file, place.line) if place else ("", "", 0)


def _phrases(
    waiting: list[RankFacts], absent: list[RankFacts], gone: list[RankFacts], places: dict[int, Place | None]
) -> list[str]:
    phrases: list[str] = []
    by_place: dict[str, list[int]] = {}
    for rank in absent:
        place = places.get(rank.rank)
        by_place.setdefault(place.sentence() if place else "in code without a Python stack", []).append(rank.rank)
    for where, ranks in by_place.items():
        phrases.append(f"{name_ranks(ranks)} {'was' if len(ranks) == 1 else 'were'} {where}")
    by_place = {}
    for rank in waiting:
        place = places[rank.rank]
        assert place is not None
        by_place.setdefault(place.sentence(), []).append(rank.rank)
    for where, ranks in by_place.items():
        phrases.append(f"{name_ranks(ranks)} waited {where}")
    if gone:
        phrases.append(f"{name_ranks([rank.rank for rank in gone])} had ended")
    return phrases
