"""What is said of runs in which nothing went wrong, of limits that a run reached, and of its attempts.

It imports little: a run that passes needs no other words.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from lab.node.messages.agent import CHECK, FILES_IN, LeftRunning, Limited, Staged
from lab.words import clip, clip_middle, format_bytes, format_duration, format_limit, listing, name_attempts, plural

if TYPE_CHECKING:
    from lab.diagnosis.evidence import Judgement
    from lab.diagnosis.facts import RunFacts
    from lab.record.result import Attempt

_MOST_PATHS = 3
"""Paths in one sentence."""
_LONGEST_COMMAND = 80
_LONGEST_ATTEMPT = 160
_MOST_CLAUSES = 6


def passed_reason(facts: RunFacts) -> str:
    """The reason of a run that passed."""
    who = f"all {len(facts.ranks)} ranks" if len(facts.ranks) > 1 else "1 rank"
    return f"{who} ended as expected in {format_duration(facts.duration_s)}"


def replaced_reason(facts: RunFacts) -> str:
    """How an attempt ended that its launcher ended, and none of its ranks."""
    after = format_duration(facts.duration_s)
    if facts.came:
        return f"ended after {after}: {listing(facts.came)} came, and the launcher began anew with it"
    return f"interrupted after {after}: the launcher began the workers anew, and none had failed"


# -- limits that a run reached, and processes that outlived the workers that started them, for the end of a reason


def describe_limits_and_orphans(facts: RunFacts) -> str:
    """What follows the reason of a verdict."""
    return "".join(f"; {clause}" for clause in (*render_limits(facts.limits), *render_orphans(facts.left_running)))


def render_limits(reached: Sequence[Limited]) -> list[str]:
    """A clause for each limit that was reached."""
    return [_limit(one) for one in {(one.what, one.node, one.rank): one for one in reached}.values()]


def _limit(one: Limited) -> str:
    limit, of_check = format_limit(one.limit), one.rank == CHECK
    who = "the check" if of_check else f"rank {one.rank}" if one.rank is not None else f"the ranks of {one.node}"
    where = f"the check on {one.node}" if of_check else one.node
    if one.what == "processes":
        return f"{where} reached its limit of {one.limit:,} processes and threads"
    if one.what == "memory":
        processes = "processes of the check" if of_check else "processes"
        return f"{processes} on {one.node} were killed for lack of memory: its limit is {limit}"
    if one.what != "disk":
        if one.rank is None or one.what.startswith(FILES_IN):
            return f"{where} reached its limit of {limit} of {one.what}"
        rest = f", {format_bytes(one.excess)}" if one.excess else ""
        return f"{who} wrote more than {limit} of {one.what}; the rest is dropped{rest}"
    was_killed = f"and {'were' if one.rank is None else 'was'} killed for it"
    if one.excess > one.limit:
        return f"{who} wrote more than {limit} to the disk of {one.node}, {was_killed}"
    if one.excess:
        wrote = f"{who} wrote {format_bytes(one.excess)} to the disk of {one.node}"
        return f"{wrote}, whose limit of {limit} was reached, {was_killed}"
    return (
        f"the disk of {one.node} was nearly full, more than {limit} of it were taken in this run by somebody whom its "
        "agent cannot tell, and its ranks were killed for it"
    )


def render_orphans(left: Sequence[LeftRunning]) -> list[str]:
    """A clause for each worker whose processes outlived it."""
    by_rank: dict[tuple[str, int | None], list[LeftRunning]] = {}
    for one in left:
        by_rank.setdefault((one.node, one.rank), []).append(one)
    clauses = []
    for (node, rank), ours in by_rank.items():
        who = f"rank {rank} left" if rank is not None else f"processes of {node} had left"
        commands = ", ".join(dict.fromkeys(clip(one.command, _LONGEST_COMMAND) for one in ours))
        was = "was" if len(ours) == 1 else "were"
        many = plural(len(ours), "process", "processes")
        clauses.append(f"{who} {many} running, which {was} stopped: {commands}")
    return clauses


def render_left_out(staged: Staged | None) -> str:
    """What a check was not given of what the ranks left, as a clause; empty where it was given everything."""
    if staged is None:
        return ""
    shown = [f"{path} ({why})" for path, why in islice(staged.left_out.items(), _MOST_PATHS)]
    more = len(staged.left_out) - len(shown) + staged.more
    return f"the check was not given {', '.join(shown)}" + (f" and {more:,} more" if more else "")


# -- several attempts


def attempts_reason(last: Judgement, attempts: Sequence[Attempt], used_up: int) -> str:
    """The reason of the last of several attempts, with what ended those before it; see `with_attempts`."""
    earlier, restarts = attempts[:-1], plural(len(attempts) - 1, "restart")
    ends = [*map(_end_of, earlier), last.summary or last.reason]
    if last.verdict == "passed":
        return f"after {restarts}: {_ends(attempts)}; then {last.reason}"
    end = ""
    if used_up:
        end = f"; all {used_up} restarts that max_restarts allows are used up"
        end = "; the restart that max_restarts: 1 allows is used up" if used_up == 1 else end
    if last.culprit is not None and len({clip_middle(one, _LONGEST_ATTEMPT) for one in ends}) == 1:
        return f"in each of {len(attempts)} attempts, {last.reason}{end}"
    return f"in attempt {len(earlier)}, after {restarts}, {last.reason}; before that, {_ends(attempts)}{end}"


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
    return clip_middle(attempt.summary or attempt.reason, _LONGEST_ATTEMPT)
