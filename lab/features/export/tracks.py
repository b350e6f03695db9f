"""A trace as tracks of slices and arrows, in Chrome's trace event format."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any

from lab.features.timeline.svg import lay_rows
from lab.record.read import Record
from lab.trace.model import Call, Phase, Trace
from lab.trace.steps import Step


@dataclass(slots=True)
class Slice:
    """An activity of a rank. Times are nanoseconds from the first line of the run."""

    kind: str
    """`phase` of a training step; `collective`, `message`; in these two, `wait` for another rank, and `ready` after."""
    name: str
    begin: int
    end: int
    """The last line of the rank if it never ended."""
    details: dict[str, Any] = field(default_factory=dict)
    leaving: list[int] = field(default_factory=list)
    """Numbers of the arrows that start at its beginning."""
    arriving: list[int] = field(default_factory=list)
    """Numbers of the arrows that end at its beginning."""


@dataclass(slots=True)
class Track:
    """One row of a rank: its phases, its calls, or those that overlap them."""

    node: str
    name: str
    """`rank 0 phases`, `rank 0`, `rank 0 overlapping 1`."""
    slices: list[Slice]
    """They are nested or do not touch."""


def make_tracks(record: Record, trace: Trace, steps: Sequence[Step]) -> list[Track]:
    """Return the tracks of every rank.

    Arrows go from each send to its receive, from the source to those it serves, from those that give to the
    destination, and from the last rank to all others; a step with a missing rank has none. Viewers let an arrow point
    only to what began later, so in a call that had to wait the arrow goes to the part after the wait.
    """
    nodes = record.ranks()
    step_of = {(call.rank, call.index): step for step in steps for call in step.calls.values()}
    slices = {
        (call.rank, call.index): _call_slice(call, step_of.get((call.rank, call.index)), to_ns(rank.last))
        for rank in trace.ranks.values()
        for call in rank.calls
    }
    senders: dict[tuple[int, int], list[Call]] = defaultdict(list)
    for number, (sender, receiver) in enumerate(chain.from_iterable(map(_arrows, steps)), start=1):
        slices[sender.rank, sender.index].leaving.append(number)
        slices[receiver.rank, receiver.index].arriving.append(number)
        senders[receiver.rank, receiver.index].append(sender)
    tracks = []
    for rank in trace.ranks.values():
        node, name = nodes.get(rank.rank, ""), f"rank {rank.rank}"
        if rank.phases:
            tracks.append(Track(node, f"{name} phases", _phase_slices(rank.phases, to_ns(rank.last))))
        calls = [slices[call.rank, call.index] for call in rank.calls]
        rows = lay_rows((call.begin, max(call.end, call.begin + 1)) for call in calls)
        lanes: list[list[Slice]] = [[] for _ in range(max(rows, default=0) + 1)]
        for call, one, row in zip(rank.calls, calls, rows, strict=True):
            lanes[row] += _parts(one, senders[call.rank, call.index])
        for number, lane in enumerate(lanes):
            tracks.append(Track(node, f"{name} overlapping {number}" if number else name, lane))
    return tracks


def to_ns(seconds: float) -> int:
    """Round seconds of a trace to whole nanoseconds."""
    return round(seconds * 1e9)


def _parts(one: Slice, senders: Sequence[Call]) -> list[Slice]:
    """Return the slice of a call, then its parts if it had to wait for a sender."""
    if not senders:
        return [one]
    latest = max(senders, key=attrgetter("begin"))
    ready = to_ns(latest.begin) + 1  # after the sender's slice for a viewer that sorts by time
    if not one.begin < ready < one.end:
        return [one]
    arriving, one.arriving = one.arriving, []
    waiting = Slice("wait", f"waiting for rank {latest.rank}", one.begin, ready)
    return [one, waiting, Slice("ready", "ready", ready, one.end, arriving=arriving)]


def _arrows(step: Step) -> Iterator[tuple[Call, Call]]:
    """Yield the pairs of calls that sent and received."""
    if step.missing or step.state == "failed":
        return
    for rank, call in sorted(step.calls.items()):
        if not (step.operation.synchronises and step.last is not None):
            yield from ((step.calls[giver], call) for giver in step.needs(call) if giver in step.calls)
        elif rank != step.last:
            yield step.calls[step.last], call


_CALL_DETAILS = ("state", "error", "seq", "group", "bytes", "root", "peer", "reduce_op")
"""Fields of a call that are shown."""


def _call_slice(call: Call, step: Step | None, last: int) -> Slice:
    begin = to_ns(call.begin)
    end = max(begin, to_ns(call.end) if call.end is not None else last)
    named = {name: getattr(call, name) for name in _CALL_DETAILS}
    if step is not None:
        named |= {"step": step.number, "round": step.round, "group": step.group.label}
        waited = step.waited.get(call.rank)
        named["waited_us"] = None if waited is None else round(waited * 1e6, 3)
    if call.parameters:
        named |= {"bucket": call.bucket, "parameters": ", ".join(call.parameters)}
    named["tensors"] = " + ".join(f"{b.dtype}{list(b.shape)}" for b in call.own)
    named["at"] = f"{call.source} in {call.function}" if call.source and call.function else call.source
    details = {name: value for name, value in named.items() if value not in (None, "") or name == "tensors"}
    return Slice("message" if call.seq is None else "collective", _call_name(call, step), begin, end, details)


def _call_name(call: Call, step: Step | None) -> str:
    arrow = "→" if call.operation.sends else "←" if call.operation.receives else ""
    name = f"{call.op} {arrow} {'any' if call.peer is None else call.peer}" if arrow else call.op
    if step is not None and step.seq is not None and call.op == step.op:
        name = step.title
    return name if call.state == "completed" else f"{name} ({call.state})"


def _phase_slices(phases: Sequence[Phase], last: int) -> list[Slice]:
    """Return phases, each within the one around it even if its end is not recorded."""
    slices: list[Slice] = []
    around: list[int] = []
    for phase in sorted(phases, key=lambda phase: phase.begin):
        begin = to_ns(phase.begin)
        while around and around[-1] <= begin:
            around.pop()
        end = max(begin, to_ns(phase.end) if phase.end is not None else last)
        end = min(end, around[-1]) if around else end
        around.append(end)
        slices.append(Slice("phase", phase.name, begin, end, {"at": phase.source} if phase.source else {}))
    return slices


def chrome_trace(record: Record, trace: Trace, steps: Sequence[Step]) -> bytes:
    """Return the file in Chrome's format. Times are microseconds from the first line of the run."""
    pids: dict[str, int] = {}
    events: list[dict[str, Any]] = []
    for number, track in enumerate(make_tracks(record, trace, steps), start=1):
        is_new, pid = track.node not in pids, pids.setdefault(track.node, len(pids) + 1)
        if is_new:
            events += _name_events("process", {"pid": pid}, track.node or "nodes", pid)
        events += _name_events("thread", {"pid": pid, "tid": number}, track.name, number)
        for one in track.slices:
            events += _slice_events(one, {"pid": pid, "tid": number, "ts": one.begin / 1000})
    clock = {"origin_unix_s": trace.origin, "clock_error_s": trace.clocks.error_s}
    other = {"run": record.run, **clock, "problems": trace.problems}
    data = {"traceEvents": events, "displayTimeUnit": "ns", "otherData": other}
    return json.dumps(data, separators=(",", ":")).encode()


def _slice_events(one: Slice, at: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the slice and the ends of its arrows; `bp` lets an arrow end at the slice around it, not at the next."""
    yield {"ph": "X", "dur": (one.end - one.begin) / 1000, "cat": one.kind, "name": one.name, **at, "args": one.details}
    for number in one.leaving:
        yield {"ph": "s", "cat": "data", "name": "data", "id": number, **at}
    for number in one.arriving:
        yield {"ph": "f", "bp": "e", "cat": "data", "name": "data", "id": number, **at}


def _name_events(kind: str, where: dict[str, Any], name: str, index: int) -> list[dict[str, Any]]:
    """Return the events that set the name and the order of a process or a thread."""
    about = {"name": name, "sort_index": index}
    return [{"ph": "M", "name": f"{kind}_{key}", **where, "args": {key: value}} for key, value in about.items()]
