"""What the ranks of a run called, in the notation of `expect: calls:`: to be read, or to be put into a scenario."""

from __future__ import annotations

from typing import Any

from lab.trace.model import Trace
from lab.trace.notation import render_calls


def calls_json(trace: Trace) -> dict[str, Any]:
    """The calls of each rank as plain data, and what is missing."""
    return {"calls": {str(rank): items for rank, items in _items(trace).items()}, "problems": list(trace.problems)}


def calls_text(trace: Trace) -> str:
    """The `calls:` of a scenario that states exactly this: one list, or one for each rank where they differ."""
    by_rank = _items(trace)
    lists = list(by_rank.values())
    if lists and all(items == lists[0] for items in lists):
        lines = ["calls:", *_list(lists[0], "  ")] if lists[0] else ["calls: []"]
    else:
        lines = ["calls:"]
        for rank, items in by_rank.items():
            lines += [f"  {rank}:", *_list(items, "    ")] if items else [f"  {rank}: []"]
    return "\n".join([*lines, *(f"# {problem}" for problem in trace.problems)])


def _items(trace: Trace) -> dict[int, list[str]]:
    return {rank: render_calls(trace.ranks[rank].calls, trace.groups, phase=True) for rank in sorted(trace.ranks)}


def _list(items: list[str], indent: str) -> list[str]:
    return [f"{indent}- {item}" for item in items]
