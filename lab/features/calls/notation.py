"""Render recorded calls in the notation of scenarios, and steps as a table."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from lab.features.calls.pattern import CallPattern
from lab.report.style import MANY, Style, group_equal, range_text, table_text
from lab.trace.model import Call, Group, Trace
from lab.trace.steps import Step
from lab.words import NONE, format_bytes, format_duration, group_pairs, name_ranks


class Repeated(NamedTuple):
    """Items that repeat in consecutive rounds."""

    times: int
    items: list[str | Repeated]


def fold_repeats(items: Sequence[str], longest: int) -> list[str | Repeated]:
    """Fold repetitions of up to `longest` items; rounds may contain rounds."""
    positions = group_pairs((item, position) for position, item in enumerate(items))
    folded: list[str | Repeated] = []
    at = 0
    while at < len(items):
        occurrences = positions[items[at]]
        first = bisect_right(occurrences, at)
        periods = (position - at for position in occurrences[first : bisect_right(occurrences, at + longest)])
        period, times = _repetition(items, at, periods)
        inside = items[at : at + period]
        folded.append(inside[0] if times == 1 else Repeated(times, fold_repeats(inside, longest)))
        at += period * times
    return folded


def _repetition(items: Sequence[str], at: int, periods: Iterable[int]) -> tuple[int, int]:
    """Return how many items from a position repeat, and how often; (1, 1) if none do.

    The repetition that covers most wins, then the shortest.
    """
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
"""Longest period of calls that is folded."""


def describe_call(call: Call, groups: Mapping[str, Group]) -> CallPattern:
    """Return a recorded call as a complete pattern."""
    group = groups.get(call.group)
    return CallPattern(
        text="",
        op=call.op,
        reduce_op=call.reduce_op or None,
        tensors=tuple((tensor.dtype, tensor.shape) for tensor in call.own),
        source=None if call.operation.sends else call.giver,
        destination=None if call.operation.receives else call.taker,
        from_any=call.from_any,
        tag=call.tag,
        group=call.group if group is None else group.label,
        split=(call.splits[1] or None) if call.splits else None,
        has_handle=call.has_handle,
        bucket=None if call.bucket is None else call.bucket + 1,
        module=call.module,
        phase=call.phase,
    )


def render_call(
    call: Call, groups: Mapping[str, Group], *, phase: bool = False, whole: bool = False, sizes: bool = True
) -> str:
    """Render a call as a scenario would state it: `broadcast float32[165] from 0`.

    Args:
        call: The call.
        groups: By name.
        phase: Add the phase.
        whole: Add the handle, the bucket, and splits. A receive from any rank then has no source, because it varies
            between runs.
        sizes: Add shapes.
    """
    one = describe_call(call, groups)
    source, group = "any" if whole and one.from_any else one.source, str(one.group)
    if " " in group and not (group[0] == "[" and group[-1] == "]"):
        group = f'"{group}"'
    rest: dict[str, object] = {
        "split": f"[{','.join(map(str, one.split))}]" if whole and one.split else None,
        "from": source,
        "to": one.destination,
        "tag": one.tag or None,
        "in": None if group == "default" else group,
        "async": "" if whole and one.has_handle else None,
        "bucket": one.bucket if whole else None,
        "module": one.module if whole and one.bucket is not None and one.module != 1 else None,
        "during": (one.phase or None) if phase else None,
    }
    tensors = render_tensors((dtype, shape if sizes else None) for dtype, shape in one.tensors or ())
    words = [one.op, one.reduce_op, tensors, *(f"{word} {value}" for word, value in rest.items() if value is not None)]
    return " ".join(word.strip() for word in words if word)


def render_calls(calls: Iterable[Call], groups: Mapping[str, Group], *, phase: bool = False) -> list[str]:
    """Render calls as the items of a list, with repetitions folded: `all_reduce x3`, `(send, recv) x4`."""
    return [_text(it) for it in fold_repeats([render_call(it, groups, phase=phase) for it in calls], _LONGEST_PERIOD)]


def _text(one: str | Repeated) -> str:
    if isinstance(one, str):
        return one
    inside = ", ".join(map(_text, one.items))
    return f"{inside if len(one.items) == 1 else f'({inside})'} x{one.times}"


def render_tensors(tensors: Iterable[tuple[str, tuple[int, ...] | None]]) -> str:
    """Render dtypes and shapes, None for any shape: `3*float32[1]+int64`."""
    texts = [dtype if shape is None else f"{dtype}[{','.join(map(str, shape))}]" for dtype, shape in tensors]
    counts = [(text, len(list(same))) for text, same in groupby(texts)]
    return "+".join(text if count == 1 else f"{count}*{text}" for text, count in counts)


_HEADER = ("operation", "group", "at", "bytes", "ranks", "state", "time", "last")
_COLOURS = {"failed": "red", "unfinished": "yellow"}


def steps_text(trace: Trace, steps: Sequence[Step], style: Style) -> str:
    """Return a table of the steps, followed by what is missing in the trace."""
    rounds = any(step.round for step in steps)
    groups = [[step] for step in steps] if trace.world_size <= MANY else _alike(steps)
    rows = [[_numbers(ours), *([str(ours[0].round or NONE)] if rounds else []), *_cells_of(ours)] for ours in groups]
    head, *lines = table_text(["step", *(["round"] if rounds else []), *_HEADER], rows, style).split("\n")
    colours = [_COLOURS.get(ours[0].state) for ours in groups]
    painted = [style.paint(line, colour) if colour else line for line, colour in zip(lines, colours, strict=True)]
    parts = [head, *painted] if steps else ["No collective and no message was recorded."]
    return "\n".join([*parts, *(style.paint(problem, "dim") for problem in trace.problems)])


def _alike(steps: Sequence[Step]) -> list[list[Step]]:
    """Group consecutive messages that differ only in their ranks and times."""

    def kind(step: Step) -> tuple[object, ...]:
        _, *same, _, last = _cells_of([step])
        return (step.round, step.op, *same) if step.message else (step.number, last)

    return [list(same) for _, same in groupby(steps, key=kind)]


def _numbers(steps: Sequence[Step]) -> str:
    return str(steps[0].number) if len(steps) == 1 else f"{steps[0].number}-{steps[-1].number}"


def _cells_of(steps: Sequence[Step]) -> list[str]:
    """Return the row of a step, or of similar messages."""
    step, last = steps[0], steps[-1]
    title = step.title if step.message else f"{step.op} #{step.seq}"
    if last is not step:
        title = f"{len(steps)} x {title} … {last.title.removeprefix(f'{last.op} ')}"
    return [
        title,
        step.group.label,
        next((call.source for call in step.calls.values() if call.source), NONE),
        format_bytes(max(call.bytes for call in step.calls.values())),
        f"{len(step.calls)} of {len(step.expected)}" if step.missing else str(len(step.calls)),
        step.state,
        range_text((None if one.end is None else one.end - one.begin for one in steps), format_duration),
        NONE if step.last is None or last is not step else f"rank {step.last}",
    ]


def steps_json(trace: Trace, steps: Sequence[Step]) -> dict[str, Any]:
    """Return the steps as plain data; times in seconds from the first line of the trace."""

    def of_step(step: Step) -> dict[str, Any]:
        at = next((call.source for call in step.calls.values() if call.source), None)
        group = {"group": step.group.label, "group_ranks": step.group.ranks}
        size = max(call.bytes for call in step.calls.values())
        return {**step_facts(step), **group, "at": at, "bytes": size, "ranks": sorted(step.calls)}

    return {"steps": [*map(of_step, steps)], "problems": trace.problems}


def step_facts(step: Step) -> dict[str, Any]:
    """Return what every JSON view contains about a step."""
    names = ("number", "op", "seq", "round", "state", "source", "destination", "last")
    times = {"begin_s": step.begin, "ready_s": step.ready, "end_s": step.end}
    return {**{name: getattr(step, name) for name in names}, **times, "missing": list(step.missing)}


def calls_json(trace: Trace) -> dict[str, Any]:
    """Return the calls of each rank as plain data, and what is missing."""
    return {"calls": {str(rank): items for rank, items in _items(trace).items()}, "problems": list(trace.problems)}


def calls_text(trace: Trace) -> str:
    """Return the `calls:` of a scenario that states exactly these: one list, or one per rank if they differ.

    With many ranks, those with the same calls share a list under the first of them.
    """
    by_rank = _items(trace)
    same = group_equal((rank, tuple(items)) for rank, items in by_rank.items())
    if len(same) == 1:
        lines = [f"calls:{'' if same[0][1] else ' []'}", *(f"  - {item}" for item in same[0][1])]
    else:
        lines = ["calls:"]
        for ranks, items in same if len(by_rank) > MANY else [([rank], items) for rank, items in by_rank.items()]:
            others = f"  # the same for {name_ranks(ranks[1:])}" if ranks[1:] else ""
            lines += [f"  {ranks[0]}:{'' if items else ' []'}{others}", *(f"    - {item}" for item in items)]
    return "\n".join([*lines, *(f"# {problem}" for problem in trace.problems)])


def _items(trace: Trace) -> dict[int, list[str]]:
    return {rank: render_calls(trace.ranks[rank].calls, trace.groups, phase=True) for rank in sorted(trace.ranks)}
