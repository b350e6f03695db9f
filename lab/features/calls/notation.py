"""Recorded calls in the notation of scenarios, with what repeats written once; and steps and connections as tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from lab.node.messages.agent import Connections
from lab.record.events import Event
from lab.report.style import Style
from lab.report.table import MANY, alike, range_text, table_text
from lab.trace.model import Call, Group, Trace
from lab.trace.steps import Step
from lab.words import NONE, format_bytes, format_duration, name_ranks


class Repeated(NamedTuple):
    """Items that come several times, one round after the other."""

    times: int
    items: list[str | Repeated]


def fold(items: Sequence[str], longest: int) -> list[str | Repeated]:
    """The items with what repeats put together, rounds of up to so many items; rounds may hold rounds."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, item in enumerate(items):
        places[item].append(place)
    turn = dict.fromkeys(places, 0)
    folded: list[str | Repeated] = []
    at = 0
    while at < len(items):
        item = items[at]
        found = places[item]
        while found[turn[item]] < at:
            turn[item] += 1
        again = found[turn[item] + 1 : turn[item] + 1 + longest]
        period, times = _repetition(items, at, [place - at for place in again if place - at <= longest])
        if times == 1:
            folded.append(item)
        else:
            inside = items[at : at + period]
            folded.append(Repeated(times, [item] if period == 1 else fold(inside, longest)))
        at += period * times
    return folded


def _repetition(items: Sequence[str], at: int, periods: Sequence[int]) -> tuple[int, int]:
    """How many items from a place on repeat, and how often: what covers most, then the shortest; (1, 1) for none."""
    best = (1, 1)
    for period in periods:
        times = 1
        first = items[at : at + period]
        while items[at + times * period : at + (times + 1) * period] == first:
            times += 1
        if times > 1 and period * times > best[0] * best[1]:
            best = period, times
    return best


_LONGEST_PERIOD = 24
"""Most calls of which a repetition is noticed."""


def render_call(
    call: Call, groups: Mapping[str, Group], *, phase: bool = False, whole: bool = False, sizes: bool = True
) -> str:
    """The call as a scenario would state it: `broadcast float32[165] from 0`; with its phase if that is asked for.

    If it is to be `whole`, also what the script did with it: whether it took a handle, the bucket, splits; and whom a
    receive from any rank received from is left open then, as that differs from run to run. Without `sizes`, shapes are.
    """
    words = [call.op]
    if call.reduce_op:
        words.append(call.reduce_op)
    if call.own:
        words.append(render_tensors((tensor.dtype, tensor.shape if sizes else None) for tensor in call.own))
    split = split_of(call)
    if whole and split:
        words.append(f"split [{','.join(map(str, split))}]")
    if whole and call.from_any:
        words.append("from any")
    elif (source := source_of(call)) is not None:
        words.append(f"from {source}")
    if (destination := destination_of(call)) is not None:
        words.append(f"to {destination}")
    if call.tag:
        words.append(f"tag {call.tag}")
    label = _label(call, groups)
    if label != "default":
        words.append(f'in "{label}"' if " " in label and not (label[0] == "[" and label[-1] == "]") else f"in {label}")
    if whole:
        words += ["async"] if call.hands_out else []
        if (bucket := bucket_of(call)) is not None:
            words += [f"bucket {bucket}", *([f"module {call.module}"] if call.module != 1 else [])]
    if phase and call.phase:
        words.append(f"during {call.phase}")
    return " ".join(words)


def render_calls(calls: Iterable[Call], groups: Mapping[str, Group], *, phase: bool = False) -> list[str]:
    """Calls in order as the items of a list, with what repeats written once: `all_reduce x3`, `(send, recv) x4`."""
    texts = [render_call(call, groups, phase=phase) for call in calls]
    return [_text(one) for one in fold(texts, _LONGEST_PERIOD)]


def _text(one: str | Repeated) -> str:
    if isinstance(one, str):
        return one
    inside = ", ".join(map(_text, one.items))
    return f"{inside if len(one.items) == 1 else f'({inside})'} x{one.times}"


def source_of(call: Call) -> int | None:
    """Global rank that the data of the call comes from, where there is another one: what `from` states."""
    return None if call.operation.sends else call.giver


def destination_of(call: Call) -> int | None:
    """Global rank that the data of the call goes to, where there is another one: what `to` states."""
    return None if call.operation.receives else call.taker


def split_of(call: Call) -> tuple[int, ...] | None:
    """How many rows go to each rank, where that was said."""
    return (call.splits[1] or None) if call.splits else None


def bucket_of(call: Call) -> int | None:
    """Which bucket of its DDP module it reduces, from 1."""
    return None if call.bucket is None else call.bucket + 1


def _label(call: Call, groups: Mapping[str, Group]) -> str:
    return labels_of(call, groups)[0]


def labels_of(call: Call, groups: Mapping[str, Group]) -> tuple[str, ...]:
    """How the group may be called; as it is written first."""
    group = groups.get(call.group)
    return (group.label, group.plain_label) if group is not None else (call.group,)


def render_tensors(tensors: Iterable[tuple[str, tuple[int, ...] | None]]) -> str:
    """Dtypes and shapes, None for any: `3*float32[1]+int64`."""
    texts = [dtype if shape is None else f"{dtype}[{','.join(map(str, shape))}]" for dtype, shape in tensors]
    parts = []
    for text, same in groupby(texts):
        count = len(list(same))
        parts.append(text if count == 1 else f"{count}*{text}")
    return "+".join(parts)


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
