"""Words for runs without failures, and for limits that a run reached.

This module imports little: a run that passes needs no other words.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from lab.node.messages.agent import CHECK, FILES_IN, Limited, Staged
from lab.words import format_bytes, format_duration, format_limit, join_words

if TYPE_CHECKING:
    from lab.diagnosis.facts import RunFacts

_MOST_PATHS = 3
"""Paths in one sentence."""


def passed_reason(facts: RunFacts) -> str:
    """Return the reason of a run that passed."""
    who = f"all {len(facts.ranks)} ranks" if len(facts.ranks) > 1 else "1 rank"
    return f"{who} ended as expected in {format_duration(facts.duration_s)}"


def replaced_reason(facts: RunFacts) -> str:
    """Return the reason of an attempt that its launcher ended, not a rank."""
    after = format_duration(facts.duration_s)
    if facts.came:
        return f"ended after {after}: {join_words(facts.came)} joined, and the launcher restarted the workers"
    return f"interrupted after {after}: the launcher restarted the workers, although none had failed"


# -- limits that a run reached, for the end of a reason


def describe_limits(facts: RunFacts) -> str:
    """Return the clauses that follow the reason of a verdict."""
    return "".join(f"; {clause}" for clause in render_limits(facts.limits))


def render_limits(reached: Sequence[Limited]) -> list[str]:
    """Return a clause for each limit that was reached."""
    return [_limit(one) for one in {(one.what, one.node, one.rank): one for one in reached}.values()]


def _limit(one: Limited) -> str:
    limit, of_check = format_limit(one.limit), one.rank == CHECK
    who = "the check" if of_check else f"rank {one.rank}" if one.rank is not None else f"the ranks of {one.node}"
    where = f"the check on {one.node}" if of_check else one.node
    if one.what == "processes":
        return f"{where} reached its limit of {one.limit:,} processes and threads"
    if one.what == "memory":
        processes = "processes of the check" if of_check else "processes"
        return f"{processes} on {one.node} were killed: out of memory (limit {limit})"
    if one.what != "disk":
        if one.rank is None or one.what.startswith(FILES_IN):
            return f"{where} reached its limit of {limit} of {one.what}"
        rest = f", {format_bytes(one.excess)}" if one.excess else ""
        return f"{who} wrote more than {limit} of {one.what}; the rest is dropped{rest}"
    if one.excess > one.limit:
        return f"the agent killed {who} for writing more than {limit} to the disk of {one.node}"
    if one.excess:
        full = f"the agent killed {who} because the disk of {one.node} reached its limit of {limit}"
        return f"{full}; {who} wrote {format_bytes(one.excess)}"
    return (
        f"the agent killed the ranks of {one.node} because its disk was nearly full: unknown processes wrote more than "
        f"{limit} during this run"
    )


def render_left_out(staged: Staged | None) -> str:
    """Return a clause with the files that a check did not get; empty if it got everything."""
    if staged is None:
        return ""
    shown = [f"{path} ({why})" for path, why in islice(staged.left_out.items(), _MOST_PATHS)]
    extra_count = len(staged.left_out) - len(shown) + staged.omitted
    return f"the check did not get {', '.join(shown)}" + (f" and {extra_count:,} more" if extra_count else "")
