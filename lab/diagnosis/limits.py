"""Limits that a run reached, for the end of its reason: what is missing in the record, and what scripts did not get."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from lab.diagnosis.facts import RunFacts
from lab.node.messages.agent import CHECK, FILES_IN, Limited, Staged
from lab.words import format_bytes, format_limit

_MOST_PATHS = 3
"""Paths in one sentence."""


def told_besides(facts: RunFacts) -> str:
    """What follows the reason of a verdict: limits that were reached, processes that were left."""
    told = limits_told(facts.limits)
    if facts.left_running:
        from lab.diagnosis.left_running import left_told  # most scripts leave none

        told += left_told(facts.left_running)
    return told


def limits_told(reached: Sequence[Limited]) -> str:
    """What follows the reason of a verdict; empty where no limit was reached."""
    latest = {(one.what, one.node, one.rank): one for one in reached}
    return "".join(f"; {_sentence(one)}" for one in latest.values())


def left_out_told(staged: Staged | None) -> str:
    """What follows the end of a check that was not given everything that the ranks left."""
    if staged is None:
        return ""
    shown = [f"{path} ({why})" for path, why in islice(staged.left_out.items(), _MOST_PATHS)]
    more = len(staged.left_out) - len(shown) + staged.more
    return f"; the check was not given {', '.join(shown)}" + (f" and {more:,} more" if more else "")


def _sentence(one: Limited) -> str:
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
