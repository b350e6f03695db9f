"""A trace in Chrome's trace event format, which Perfetto's UI, `chrome://tracing` and Speedscope open.

A process for each node, a thread for each rank and for each further track of it, complete events for calls and
phases, flow events for arrows, instant events for notes and output, counters for bytes in flight. The format:
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lab.features.export.tracks import RankTracks, Slice, make_tracks
from lab.record.read import Record
from lab.trace.model import Trace
from lab.trace.steps import Step

_TRACKS_PER_RANK = 10_000


def chrome_trace(record: Record, trace: Trace, steps: Sequence[Step]) -> dict[str, Any]:
    """The whole file as plain data. Times are microseconds from the first line of the run."""
    tracks = make_tracks(record, trace, steps)
    nodes = list(dict.fromkeys(track.node for track in tracks))
    events: list[dict[str, Any]] = []
    for number, node in enumerate(nodes, start=1):
        events.append({"ph": "M", "name": "process_name", "pid": number, "args": {"name": node or "nodes"}})
        events.append({"ph": "M", "name": "process_sort_index", "pid": number, "args": {"sort_index": number}})
    for track in tracks:
        events.extend(_rank_events(track, nodes.index(track.node) + 1))
    clock = {"origin_unix_s": trace.origin, "clock_error_s": trace.clocks.error_s}
    other = {"run": record.run, **clock, "problems": trace.problems}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": other}


def _rank_events(track: RankTracks, pid: int) -> Iterator[dict[str, Any]]:
    first = (track.rank + 1) * _TRACKS_PER_RANK
    for number, lane in enumerate(track.lanes):
        where = {"pid": pid, "tid": first + number}
        yield from _name(where, f"rank {track.rank}" + (f" (overlapping {number})" if number else ""))
        for one in lane:
            yield from _slice_events(one, {**where, "ts": one.begin / 1000})
    if track.moments:
        where = {"pid": pid, "tid": first + len(track.lanes)}
        yield from _name(where, f"rank {track.rank} output")
        for moment in track.moments:
            what = {"cat": moment.kind, "name": moment.name, "args": moment.details}
            yield {"ph": "i", "s": "t", **what, **where, "ts": moment.begin / 1000}
    for time, size in track.in_flight:
        counter = {"name": f"rank {track.rank} bytes in flight", "args": {"bytes": size}}
        yield {"ph": "C", **counter, "pid": pid, "ts": time / 1000}


def _slice_events(one: Slice, at: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The slice and the ends of its arrows; `bp` says that an arrow ends at the slice around it, not at the next."""
    duration = (one.end - one.begin) / 1000
    yield {"ph": "X", "cat": one.kind, "name": one.name, **at, "dur": duration, "args": one.details}
    for number in one.leaving:
        yield {"ph": "s", "cat": "data", "name": "data", "id": number, **at}
    for number in one.arriving:
        yield {"ph": "f", "bp": "e", "cat": "data", "name": "data", "id": number, **at}


def _name(where: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "thread_name", **where, "args": {"name": name}}
    yield {"ph": "M", "name": "thread_sort_index", **where, "args": {"sort_index": where["tid"]}}
