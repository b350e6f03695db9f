"""What the ranks of a run called, in the notation of `expect: calls:`: to be read, or to be put into a scenario."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lab.report.alike import MANY, alike
from lab.trace.model import Trace
from lab.trace.notation import render_calls
from lab.words import name_ranks


def calls_json(trace: Trace) -> dict[str, Any]:
    """The calls of each rank as plain data, and what is missing."""
    return {"calls": {str(rank): items for rank, items in _items(trace).items()}, "problems": list(trace.problems)}


def calls_text(trace: Trace) -> str:
    """The `calls:` of a scenario that states exactly this: one list, or one for each rank where they differ.

    Of many ranks, those that called the same share a list, under the first of them.
    """
    by_rank = _items(trace)
    lists = list(by_rank.values())
    if lists and all(items == lists[0] for items in lists):
        lines = ["calls:", *_list(lists[0], "  ")] if lists[0] else ["calls: []"]
    else:
        lines = ["calls:"]
        same = alike((rank, tuple(items)) for rank, items in by_rank.items())
        for ranks, items in same if len(by_rank) > MANY else [([rank], tuple(by_rank[rank])) for rank in by_rank]:
            told = f"  # and so {name_ranks(ranks[1:])}" if ranks[1:] else ""
            lines += [f"  {ranks[0]}:{told}", *_list(items, "    ")] if items else [f"  {ranks[0]}: []{told}"]
    return "\n".join([*lines, *(f"# {problem}" for problem in trace.problems)])


def _items(trace: Trace) -> dict[int, list[str]]:
    return {rank: render_calls(trace.ranks[rank].calls, trace.groups, phase=True) for rank in sorted(trace.ranks)}


def _list(items: Iterable[str], indent: str) -> list[str]:
    return [f"{indent}- {item}" for item in items]
