"""What the ranks of a run called, for a person and for a program: steps, calls, connections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from lab.features.calls.notation import render_calls
from lab.node.messages.agent import Connections
from lab.record.events import Event
from lab.report.style import Style
from lab.report.table import MANY, alike, range_text, table_text
from lab.trace.model import Trace
from lab.trace.steps import Step
from lab.words import NONE, format_bytes, format_duration, name_ranks

_HEADER = ("operation", "group", "at", "bytes", "ranks", "state", "time", "last")
_COLOURS = {"failed": "red", "unfinished": "yellow"}


def steps_text(trace: Trace, steps: Sequence[Step], style: Style) -> str:
    """A table of the steps, then what is missing in the trace."""
    rounds = any(step.round for step in steps)
    header = ["step", *(["round"] if rounds else []), *_HEADER]
    groups = [[step] for step in steps] if trace.world_size <= MANY else _alike(steps)
    rows = [[_numbers(ours), *([str(ours[0].round or NONE)] if rounds else []), *_rows_of(ours)] for ours in groups]
    head, *lines = table_text(header, rows, style).split("\n")
    colours = [_COLOURS.get(ours[0].state) for ours in groups]
    painted = [style.paint(line, colour) if colour else line for line, colour in zip(lines, colours, strict=True)]
    parts = ["\n".join([head, *painted])] if steps else ["No collective and no message was recorded."]
    parts += [style.paint(problem, "dim") for problem in trace.problems]
    return "\n".join(parts)


def _alike(steps: Sequence[Step]) -> list[list[Step]]:
    """Messages that follow each other and differ in their ends and their time at most, together."""

    def kind(step: Step) -> tuple[object, ...]:
        *_, last = row = _row(step)
        return (step.round, step.op, *row[1:-2]) if step.message else (step.number, last)

    return [list(same) for _, same in groupby(steps, key=kind)]


def _numbers(steps: Sequence[Step]) -> str:
    return str(steps[0].number) if len(steps) == 1 else f"{steps[0].number}-{steps[-1].number}"


def _rows_of(steps: Sequence[Step]) -> list[str]:
    if len(steps) == 1:
        return _row(steps[0])
    title = f"{len(steps)} x {steps[0].title} … {steps[-1].title.removeprefix(f'{steps[-1].op} ')}"
    spans = (None if step.end is None else step.end - step.begin for step in steps)
    return [title, *_row(steps[0])[1:-2], range_text(spans, format_duration), NONE]


def _row(step: Step) -> list[str]:
    span = None if step.end is None else step.end - step.begin
    entered = str(len(step.calls)) if not step.missing else f"{len(step.calls)} of {len(step.expected)}"
    return [
        step.title if step.message else f"{step.op} #{step.seq}",
        step.group.label,
        next((call.source for call in step.calls.values() if call.source), NONE),
        format_bytes(max(call.bytes for call in step.calls.values())),
        entered,
        step.state,
        format_duration(span),
        NONE if step.last is None else f"rank {step.last}",
    ]


def steps_json(trace: Trace, steps: Sequence[Step]) -> dict[str, Any]:
    """The same as plain data; times in seconds from the first line of the trace."""
    return {"steps": [_step_json(step) for step in steps], "problems": trace.problems}


def _step_json(step: Step) -> dict[str, Any]:
    return {
        **step_facts(step),
        "group": step.group.label,
        "group_ranks": step.group.ranks,
        "at": next((call.source for call in step.calls.values() if call.source), None),
        "bytes": max(call.bytes for call in step.calls.values()),
        "ranks": sorted(step.calls),
    }


def step_facts(step: Step) -> dict[str, Any]:
    """What every view as JSON says of a step."""
    names = ("number", "op", "seq", "round", "state", "source", "destination", "last")
    times = {"begin_s": step.begin, "ready_s": step.ready, "end_s": step.end}
    return {**{name: getattr(step, name) for name in names}, **times, "missing": list(step.missing)}


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


_HEAD = ["from", "to", "round trip", "delivered", "acknowledged", "sent again", "not acknowledged", "answers"]
_ANSWERS = {None: "-", True: "yes", False: "no"}


def connections_json(facts: Iterable[Event]) -> list[dict[str, Any]]:
    """Every report, in order."""
    return [one._asdict() for one in facts if isinstance(one, Connections)]


def connections_text(facts: Iterable[Event], style: Style) -> str:
    """A line for each node and each other one; that nothing is known, where nothing is."""
    told = [one for one in facts if isinstance(one, Connections)]
    if not told:
        return "nothing is known of connections: short runs tell nothing, nor do nodes without a network of their own"
    last: dict[tuple[str, str], Connections] = {}
    for one in told:
        way = one.node, one.peer
        if one.number or way not in last:  # what is closed tells nothing more
            last[way] = one
    return table_text(_HEAD, [_cells(last[way]) for way in sorted(last)], style)


def _cells(one: Connections) -> list[str]:
    again = f"{one.sent_again} of {one.segments_out}" if one.segments_out else "-"
    left = format_bytes(one.unacknowledged_bytes) if one.unacknowledged_bytes else "-"
    left += f" for {format_duration(one.silent_s)}" if one.stuck else ""
    return [
        one.node,
        one.peer,
        format_duration(one.round_trip_s) if one.round_trip_s else "-",
        f"{format_bytes(round(one.rate_bytes_per_s))}/s" if one.rate_bytes_per_s else "-",
        format_bytes(one.acknowledged_bytes),
        again,
        left,
        _ANSWERS[one.answers],
    ]
