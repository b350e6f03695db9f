"""Limits that a run reached, for the end of its reason: what is missing in the record, and what scripts did not get."""

from __future__ import annotations

from collections.abc import Sequence

from lab.node.messages.agent import Limited
from lab.verdict.facts import RunFacts
from lab.words import format_bytes, format_limit


def told_besides(facts: RunFacts) -> str:
    """What follows the reason of a verdict: limits that were reached, processes that were left."""
    told = limits_told(facts.limits)
    if facts.left_running:
        from lab.verdict.left_running import left_told  # most scripts leave none

        told += left_told(facts.left_running)
    return told


def limits_told(reached: Sequence[Limited]) -> str:
    """What follows the reason of a verdict; empty where no limit was reached."""
    latest = {(one.what, one.node, one.rank): one for one in reached}
    return "".join(f"; {_sentence(one)}" for one in latest.values())


def _sentence(one: Limited) -> str:
    limit = format_limit(one.limit)
    if one.what == "disk":
        return _of_disk(one, limit)
    if one.rank is not None:
        rest = f", {format_bytes(one.excess)}" if one.excess else ""
        return f"{_who(one)} wrote more than {limit} of {one.what}; the rest is dropped{rest}"
    if one.what == "processes":
        return f"{one.node} reached its limit of {one.limit:,} processes and threads"
    if one.what == "memory":
        return f"processes on {one.node} were killed for lack of memory: its limit is {limit}"
    return f"{one.node} reached its limit of {limit} of {one.what}"


def _who(one: Limited) -> str:
    if one.rank is None:
        return f"the ranks of {one.node}"
    return f"rank {one.rank}" if one.rank >= 0 else "the check"


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
