"""A trace as plain data: ranks, groups, steps with their calls, phases, buckets, traffic. Times are seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from lab.features.calls.show_view import step_facts
from lab.features.traffic.traffic import matrix, operations, size_of
from lab.record.read import Record
from lab.trace.model import Buffer, Call, Mark, Trace
from lab.trace.steps import Step

_NAMES = {"begin": "begin_s", "end": "end_s", "source": "at", "asynchronous": "async"}
"""Of fields, where they are called something else in JSON."""


def trace_json(record: Record, trace: Trace, steps: Sequence[Step]) -> dict[str, Any]:
    """Everything that is known of the communication of a run; all times count from its first line."""
    nodes = record.ranks()
    marks = sorted((mark for rank in trace.ranks.values() for mark in rank.marks), key=lambda mark: mark.begin)
    return {
        "run": record.run,
        "world_size": trace.world_size,
        "clock": {"origin_unix_s": trace.origin, "error_s": trace.clocks.error_s},
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
        "marks": [_fields(mark) for mark in marks],
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


def _call(call: Call) -> dict[str, Any]:
    facts = {name: value for name, value in _fields(call).items() if name not in ("group", "seq")}
    tensors = {"inputs": [_fields(buffer) for buffer in call.inputs], "outputs": [_fields(b) for b in call.outputs]}
    splits = None if call.splits is None else {"output": call.splits[0], "input": call.splits[1]}
    return {**facts, **tensors, "splits": splits, "state": call.state}


def _fields(one: Call | Buffer | Mark) -> dict[str, Any]:
    return {_NAMES.get(field.name, field.name): getattr(one, field.name) for field in fields(one)}
