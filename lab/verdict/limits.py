"""Limits that a run reached, for the end of its reason: what is missing in the record, and what scripts did not get."""

from __future__ import annotations

from collections.abc import Sequence

from lab.node.messages import Limited
from lab.words import format_bytes, format_limit


def limits_told(reached: Sequence[Limited]) -> str:
    """What follows the reason of a verdict; empty where no limit was reached."""
    latest = {(one.what, one.node, one.rank): one for one in reached}
    return "".join(f"; {_sentence(one)}" for one in latest.values())


def _sentence(one: Limited) -> str:
    if one.rank is not None:
        who = f"rank {one.rank}" if one.rank >= 0 else "the check"
        limit, rest = format_limit(one.limit), format_bytes(one.excess)
        return f"{who} wrote more than {limit} of {one.what}; the rest is dropped, {rest}"
    if one.what == "processes":
        return f"{one.node} reached its limit of {one.limit:,} processes and threads"
    if one.what == "memory":
        return f"processes on {one.node} were killed for lack of memory: its limit is {format_limit(one.limit)}"
    return f"{one.node} reached its limit of {format_limit(one.limit)} of {one.what}"
