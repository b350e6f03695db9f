"""The verdict: who failed first, and one sentence that says so. Pure: facts in, judgement out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from lab.record.result import Culprit
from lab.verdict.facts import RankFacts, RunFacts
from lab.verdict.fingerprints import OddOne, find_odd_one
from lab.verdict.hung import judge_hang
from lab.verdict.judgement import TRACEBACK_LINES, Context, Judgement, head, went_alone
from lab.verdict.stacks import find_place, find_raised, shorten_paths
from lab.words import format_duration, format_limit, name_ranks

if TYPE_CHECKING:
    from lab.verdict.finding import Finding

_PEER_LOST = re.compile(
    r"Connection closed by peer|Connection reset by peer|Connection refused|Broken pipe|Read error|pair closure"
    r"|recvValue failed|recvVector failed|sendBytes failed|failed to recv, got 0 bytes|connectFullMesh|DistNetworkError"
    r"|socket (?:was )?closed|client socket has timed out|Timed out waiting|wait timeout"
    r"|remote process (?:has )?(?:exited|terminated)|ncclRemoteError",
    re.IGNORECASE,
)
"""What torch.distributed says in a rank that failed because another one did."""
_BY_TORCH = re.compile(r"^(?:RuntimeError|torch\.distributed\.[\w.]+): ", re.MULTILINE)
"""How the text of an exception begins that torch.distributed raises; a script's own broken pipe is no RuntimeError."""
_TRACEBACK_START = "Traceback (most recent call last):\n"
_SEEN_LATER_S = 1.0
"""A rank's peers may feel its end as much earlier than its agent sees it."""


def judge(facts: RunFacts, context: Context) -> Judgement:
    """Say how a run went and whose fault it was.

    The first culprit is the earliest rank or node whose failure was its own. A rank that lost its peer is secondary;
    if only such ranks failed, the culprit is the rank that left the others without failing itself, because it exited
    or because it went on without them.
    """
    if facts.engine_lost:
        return Judgement(verdict="error", reason=facts.engine_lost)
    if facts.refused:
        return Judgement(verdict="error", reason=facts.refused)
    if facts.interrupted:
        return Judgement(verdict="error", reason=f"interrupted after {format_duration(facts.duration_s)}")
    failed = [rank for rank in facts.ranks if rank.failed]
    if failed or facts.lost_nodes:
        return _judge_failure(facts, failed, context)
    if facts.timed_out:
        return judge_hang(facts, context)
    return Judgement(verdict="passed", reason=_passed(facts))


def _passed(facts: RunFacts) -> str:
    count = len(facts.ranks)
    who = f"all {count} ranks" if count > 1 else "1 rank"
    return f"{who} ended as expected in {format_duration(facts.duration_s)}"


# -- failures


def _judge_failure(facts: RunFacts, failed: list[RankFacts], context: Context) -> Judgement:
    from lab.verdict.traced import odd_call  # not at the start: a run that passes needs none of it

    own = sorted((rank for rank in failed if not is_secondary(rank)), key=_failed_at)
    lost = min(facts.lost_nodes, key=lambda node: node.time, default=None)
    if lost is not None and (not own or lost.time <= _failed_at(own[0])):
        ranks = [rank.rank for rank in facts.ranks if rank.node == lost.node]
        what = f"{lost.node} {lost.how} in mid-run"
        reason = f"{what}; {name_ranks(ranks)} ran there"
        return Judgement(
            verdict="failed",
            reason=reason,
            culprit=Culprit(rank=ranks[0] if ranks else None, node=lost.node, error=what),
        )
    odd = find_odd_one(failed)
    if odd is not None:
        return _blame_odd_one(odd, facts, context)
    if all(_blames_a_peer(rank) for rank in own) and (found := odd_call(context)) is not None:
        return _blame_odd_call(found, facts, min(failed, key=_failed_at), context)
    if own:
        culprit = own[0]
        error = _describe(culprit, facts, context)
        return Judgement(
            verdict="failed", reason=f"rank {culprit.rank} ({culprit.node}) {error}", culprit=_culprit(culprit, error)
        )
    victim = min(failed, key=_failed_at)
    gone = [rank for rank in facts.ranks if rank.code == 0 and not rank.stopped]
    if len(gone) > len(facts.ranks) - len(gone):
        place = find_raised(victim.traceback, context.folder)
        alone = went_alone(place, [rank.rank for rank in gone])
        reason = f"rank {victim.rank} ({victim.node}) {alone}: it {_describe(victim, facts, context)}"
        return Judgement(verdict="failed", reason=reason, culprit=_culprit(victim, alone))
    deserter = _left_early(facts, victim, context)
    if deserter is not None:
        return _blame_deserter(deserter, victim, facts, context)
    error = _describe(victim, facts, context)
    return Judgement(
        verdict="failed", reason=f"rank {victim.rank} ({victim.node}) {error}", culprit=_culprit(victim, error)
    )


def _blame_odd_one(odd: OddOne, facts: RunFacts, context: Context) -> Judgement:
    culprit = facts.ranks[odd.rank]
    place = find_raised(culprit.traceback, context.folder)
    error = (
        f"called {odd.call}{f' at {place.file}:{place.line}' if place else ''} where most others called {odd.others}"
    )
    reason = f"rank {culprit.rank} ({culprit.node}) {error}"
    return Judgement(verdict="failed", reason=reason, culprit=_culprit(culprit, error))


def is_secondary(rank: RankFacts) -> bool:
    """Whether a rank failed because it lost a peer, even if it raised something else because of that."""
    for text in (rank.error, *rank.traceback.split(_TRACEBACK_START)):
        raised = _BY_TORCH.search(text)
        if raised and _PEER_LOST.search(text, raised.end()):
            return True
    return False


def _failed_at(rank: RankFacts) -> float:
    return rank.raised or rank.ended or float("inf")


def _left_early(facts: RunFacts, victim: RankFacts, context: Context) -> RankFacts | None:
    """The rank that was gone when the others got into trouble, or else one that had nothing to do with them."""
    from lab.verdict.traced import needed_by

    before = _failed_at(victim)
    left = [rank for rank in facts.ranks if not rank.stopped and not rank.failed]
    gone = [rank for rank in left if rank.ended is not None and rank.ended <= before + _SEEN_LATER_S]
    if gone:
        needed = needed_by(context, victim.rank)
        gone = [rank for rank in gone if rank.rank in needed] or gone
        return min(gone, key=lambda rank: rank.ended or 0.0)
    return next((rank for rank in facts.ranks if rank.stack and not _in_collective(rank, context.folder)), None)


def _in_collective(rank: RankFacts, folder: Path) -> bool:
    place = find_place(rank.stack, folder)
    return place is not None and bool(place.call)


def _blame_deserter(deserter: RankFacts, victim: RankFacts, facts: RunFacts, context: Context) -> Judgement:
    if deserter.stopped:
        place = find_place(deserter.stack, context.folder)
        where = place.sentence() if place else "in code without a Python stack"
        error = f"left the others while they still needed it, it was {where}"
    else:
        lived = (deserter.ended or 0.0) - (deserter.started or deserter.ended or 0.0)
        error = f"exited early, with code {deserter.code} after {format_duration(lived)}, while others still needed it"
    reason = (
        f"rank {deserter.rank} ({deserter.node}) {error}: rank {victim.rank} then {_describe(victim, facts, context)}"
    )
    return Judgement(
        verdict="failed",
        reason=reason,
        culprit=Culprit(
            rank=deserter.rank,
            node=deserter.node,
            error=error,
            traceback=head(deserter.stack) or _tail(victim.traceback),
        ),
    )


def _blames_a_peer(rank: RankFacts) -> bool:
    """Whether a rank failed inside torch.distributed: what a peer brought there may be why."""
    return rank.signal == "SIGABRT" or (_BY_TORCH.search(rank.error) is not None and not rank.out_of_memory)


def _blame_odd_call(found: Finding, facts: RunFacts, victim: RankFacts, context: Context) -> Judgement:
    """The trace shows a rank that called a step otherwise than the others, in which ranks then failed."""
    culprit = facts.ranks[found.ranks[0]]
    reason = f"rank {culprit.rank} ({culprit.node}) did not call what the others called: {found.headline}"
    if victim is not culprit:
        reason += f"; rank {victim.rank} then {_describe(victim, facts, context)}"
    return Judgement(verdict="failed", reason=reason, culprit=_culprit(culprit, found.headline))


def _culprit(rank: RankFacts, error: str) -> Culprit:
    traceback = _tail(rank.traceback) or head(rank.stack)
    return Culprit(rank=rank.rank, node=rank.node, error=error, traceback=traceback)


def _describe(rank: RankFacts, facts: RunFacts, context: Context) -> str:
    """What a rank did, as the end of a sentence that begins with its name."""
    if rank.out_of_memory:
        limit = f": its node's limit is {format_limit(facts.memory_bytes)}" if facts.memory_bytes else ""
        return f"was killed for want of memory{limit}"
    if rank.signal:
        place = find_place(rank.stack, context.folder)
        return f"was killed by {rank.signal}{' ' + place.sentence() if place else ''}"
    if rank.error and not rank.error.startswith("SystemExit"):
        place = find_raised(rank.traceback, context.folder)
        first_line = rank.error.strip().splitlines()[0]
        return f"raised {first_line}{f' at {place.file}:{place.line}' if place else ''}"
    place = find_raised(rank.traceback, context.folder)
    return (
        f"exited with code {rank.code}"
        + (f", expected {rank.expected_code}," if rank.expected_code else "")
        + (f" at {place.file}:{place.line}" if place else "")
        + _last_words(rank.error)
    )


def _last_words(error: str) -> str:
    """The text that a script gave to `sys.exit`, as the end of a sentence."""
    said = error.partition(": ")[2].strip()
    return f": {said.splitlines()[0]}" if said and not said.lstrip("-").isdigit() else ""


def _tail(traceback: str) -> str:
    lines = shorten_paths(traceback).strip().splitlines()
    return "\n".join(lines[-TRACEBACK_LINES:])
