"""Limits that a run reached, for the end of its reason: what is missing in the record, and what scripts did not get."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from lab.diagnosis.facts import RunFacts
from lab.node.messages.agent import CHECK, FILES_IN, LeftRunning, Limited, Staged
from lab.words import clip, format_bytes, format_limit, plural

_MOST_PATHS = 3
"""Paths in one sentence."""


def told_besides(facts: RunFacts) -> str:
    """What follows the reason of a verdict: limits that were reached, processes that were left."""
    return "".join(f"; {clause}" for clause in (*limits_told(facts.limits), *left_told(facts.left_running)))


def limits_told(reached: Sequence[Limited]) -> list[str]:
    """A clause for each limit that was reached."""
    latest = {(one.what, one.node, one.rank): one for one in reached}
    return [_of_limit(one) for one in latest.values()]


def left_out_told(staged: Staged | None) -> str:
    """What a check was not given of what the ranks left, as a clause; empty where it was given everything."""
    if staged is None:
        return ""
    shown = [f"{path} ({why})" for path, why in islice(staged.left_out.items(), _MOST_PATHS)]
    more = len(staged.left_out) - len(shown) + staged.more
    return f"the check was not given {', '.join(shown)}" + (f" and {more:,} more" if more else "")


def _of_limit(one: Limited) -> str:
    limit = format_limit(one.limit)
    if one.what == "disk":
        return _of_disk(one, limit)
    where = f"the check on {one.node}" if one.rank == CHECK else one.node
    if one.what == "processes":
        return f"{where} reached its limit of {one.limit:,} processes and threads"
    if one.what == "memory":
        of_check = "of the check " if one.rank == CHECK else ""
        return f"processes {of_check}on {one.node} were killed for lack of memory: its limit is {limit}"
    if one.rank is None or one.what.startswith(FILES_IN):
        return f"{where} reached its limit of {limit} of {one.what}"
    rest = f", {format_bytes(one.excess)}" if one.excess else ""
    return f"{_who(one)} wrote more than {limit} of {one.what}; the rest is dropped{rest}"


def _who(one: Limited) -> str:
    if one.rank is None:
        return f"the ranks of {one.node}"
    return "the check" if one.rank == CHECK else f"rank {one.rank}"


def _of_disk(one: Limited, limit: str) -> str:
    was_killed = f"and {'were' if one.rank is None else 'was'} killed for it"
    if one.excess > one.limit:
        return f"{_who(one)} wrote more than {limit} to the disk of {one.node}, {was_killed}"
    if one.excess:
        wrote = f"{_who(one)} wrote {format_bytes(one.excess)} to the disk of {one.node}"
        return f"{wrote}, whose limit of {limit} was reached, {was_killed}"
    return (
        f"the disk of {one.node} was nearly full, more than {limit} of it were taken in this run by somebody whom its "
        "agent cannot tell, and its ranks were killed for it"
    )


# -- Processes that outlived the workers that started them, for the end of a run's reason


_LONGEST_COMMAND = 80


def left_told(left: Sequence[LeftRunning]) -> list[str]:
    """A clause for each worker whose processes outlived it."""
    by_rank: dict[tuple[str, int | None], list[LeftRunning]] = {}
    for one in left:
        by_rank.setdefault((one.node, one.rank), []).append(one)
    return [_of_orphans(node, rank, ours) for (node, rank), ours in by_rank.items()]


def _of_orphans(node: str, rank: int | None, left: Sequence[LeftRunning]) -> str:
    who = f"rank {rank} left" if rank is not None else f"processes of {node} had left"
    commands = ", ".join(dict.fromkeys(clip(one.command, _LONGEST_COMMAND) for one in left))
    was = "was" if len(left) == 1 else "were"
    return f"{who} {plural(len(left), 'process', 'processes')} running, which {was} stopped: {commands}"
