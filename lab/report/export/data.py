"""A trace as plain data: ranks, groups, steps with their calls, phases, buckets, traffic. Times are seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from lab.record.read import Record
from lab.trace.model import Buffer, Call, Trace
from lab.trace.steps import Step
from lab.trace.traffic import matrix, operations, size_of


def trace_json(record: Record, trace: Trace, steps: Sequence[Step]) -> dict[str, Any]:
    """Everything that is known of the communication of a run; all times count from its first line."""
    nodes = record.workers()
    marks = sorted((mark for rank in trace.ranks.values() for mark in rank.marks), key=lambda mark: mark.begin)
    return {
        "run": record.run,
        "world_size": trace.world_size,
        "clock": {"origin_unix_s": trace.origin, "error_s": trace.clock_error_s},
        "problems": trace.problems,
        "ranks": [
            {
                "rank": rank.rank,
                "node": nodes.get(rank.rank, ""),
                "recorder": rank.recorder,
                "torch": rank.torch,
                "first_s": rank.first,
                "last_s": rank.last,
                "stopped": rank.stopped,
                "calls": len(rank.calls),
            }
            for rank in trace.ranks.values()
        ],
        "groups": [{**asdict(group), "label": group.label} for group in trace.groups.values()],
        "steps": [_step(step) for step in steps],
        "marks": [{"rank": m.rank, "name": m.name, "begin_s": m.begin, "end_s": m.end, "at": m.source} for m in marks],
        "buckets": [asdict(layout) for rank in trace.ranks.values() for layout in rank.buckets],
        "traffic": {"logical_bytes": matrix(steps, trace.world_size)},
        "operations": [asdict(row) for row in operations(steps)],
        "operations_by_size": [asdict(row) for row in operations(steps, by_size=True)],
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        **step_facts(step),
        "title": step.title,
        "group": step.group.name,
        "bytes": size_of(step),
        "expected": list(step.expected),
        "waited_s": {str(rank): seconds for rank, seconds in step.waited.items()},
        "calls": [_call(call) for _, call in sorted(step.calls.items())],
    }


def step_facts(step: Step) -> dict[str, Any]:
    """What every view as JSON says of a step."""
    names = ("number", "op", "seq", "state", "source", "destination", "last")
    times = {"begin_s": step.begin, "ready_s": step.ready, "end_s": step.end}
    return {**{name: getattr(step, name) for name in names}, **times, "missing": list(step.missing)}


def _call(call: Call) -> dict[str, Any]:
    return {
        "rank": call.rank,
        "index": call.index,
        "op": call.op,
        "state": call.state,
        "begin_s": call.begin,
        "end_s": call.end,
        "error": call.error,
        "async": call.asynchronous,
        "reduce_op": call.reduce_op,
        "root": call.root,
        "peer": call.peer,
        "tag": call.tag,
        "bytes_in": call.bytes_in,
        "bytes_out": call.bytes_out,
        "in_place": call.in_place,
        "inputs": [_buffer(buffer) for buffer in call.inputs],
        "outputs": [_buffer(buffer) for buffer in call.outputs],
        "splits": None if call.splits is None else {"output": call.splits[0], "input": call.splits[1]},
        "phase": call.phase,
        "at": call.source,
        "function": call.function,
        "via": call.via,
        "bucket": call.bucket,
        "parameters": list(call.parameters),
    }


def _buffer(buffer: Buffer) -> dict[str, Any]:
    return {
        "dtype": buffer.dtype,
        "shape": list(buffer.shape),
        "values": None if buffer.values is None else list(buffer.values),
        "summary": None if buffer.summary is None else dict(buffer.summary),
    }
