"""The recorder against the scripts: every scenario of the library records the calls that its script makes.

What is expected stands in `ground_truth.yaml`, with how it was found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from lab.features.calls.notation import render_calls
from lab.features.calls.pattern import CallPattern, parse_calls
from lab.features.calls.snapshot import first_departure
from lab.plan.plan import WorkerPlan
from lab.record.read import Record
from lab.spec.expressions import RankVariables
from lab.trace.model import Call, Trace
from lab.trace.read import read_trace
from lab.trace.steps import Step, match_steps
from tests.engines.lessons import FILES, Lesson, on_engines

TOPICS: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "ground_truth.yaml").read_text())
EXPECTED: dict[str, Any] = {name: calls for topic in TOPICS.values() for name, calls in topic["calls"].items()}
COUNTED = [name for name in FILES if not name.startswith(("elastic/", "incidents/", "survival/", "network/"))]
"""All but those in which something is lost or broken in mid-run: how far the others come is chance; and but those about
times, whose calls are those of DDP."""
MISTAKEN = {name for name in FILES if name.startswith("broken/")} - {"broken/straggler"}
"""Scenarios in which ranks do not meet, or meet in different calls."""
STAY_AWAY = {"collectives/monitored_barrier": "monitored_barrier"}
"""Scenarios in which ranks miss a call on purpose."""
MAY_COME_LATE = {"broken/exception_on_one_rank"}
"""Scenarios in which a rank may be gone before the others are through init_process_group; those then call less."""
ALIKE = {
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "all_gather_into_tensor_coalesced",
    "gather", "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced",
}  # fmt: skip
"""Operations to which every rank has to bring tensors of the same kind."""


def test_every_scenario_has_its_calls_stated_once() -> None:
    stated = [name for topic in TOPICS.values() for name in topic["calls"]]
    assert sorted(stated) == sorted(COUNTED)


@on_engines(COUNTED)
def test_a_scenario_records_the_calls_of_its_script(name: str, lesson: Lesson) -> None:
    result = lesson(name)
    assert result.path is not None
    record = Record(path=result.path)
    trace = read_trace(record)
    problems = []
    for worker in record.plan().workers:
        rank = trace.ranks[worker.rank]
        stated = stated_calls(name, worker)
        if name in MAY_COME_LATE:
            stated = stated[: len(rank.calls)]
        difference = first_departure(stated, rank.calls, trace.groups)
        if difference is not None:
            due = difference.expected.text if difference.expected is not None else "(no call)"
            problems.append(f"rank {rank.rank}: expected {due}; recorded {render_calls(rank.calls, trace.groups)}")
    assert not problems, "\n".join([result.reason, *problems])
    if name not in MISTAKEN:
        assert all(rank.stopped for rank in trace.ranks.values()), trace.problems
        disagreements = [text for step in match_steps(trace) for text in disagreement(step, STAY_AWAY.get(name))]
        assert not disagreements, "\n".join(disagreements)


def stated_calls(name: str, worker: WorkerPlan) -> list[CallPattern]:
    """What the rank has to call."""
    env = worker.env
    variables = RankVariables(
        rank=int(env["RANK"]),
        local_rank=int(env["LOCAL_RANK"]),
        node_rank=int(env["GROUP_RANK"]),
        world_size=int(env["WORLD_SIZE"]),
        nnodes=int(env["GROUP_WORLD_SIZE"]),
        nproc_per_node=int(env["LOCAL_WORLD_SIZE"]),
    )
    stated = EXPECTED[name]
    items = stated[variables.rank] if isinstance(stated, dict) else stated
    items = items.split(";") if isinstance(items, str) else items
    return [pattern for item in items for pattern in parse_calls(item.strip(), variables)]


def disagreement(step: Step, missed: str | None) -> Iterable[str]:
    """What the ranks do not have in common though they must."""
    calls = list(step.calls.values())
    if step.missing and step.op != missed:
        yield f"{step.title}: ranks {step.missing} are missing"
    if step.state == "unfinished" and step.op != missed:
        yield f"{step.title}: {step.state}"
    if step.message:
        sides = {call.op for call in calls}
        if sides != {"send", "recv"} or len({(call.bytes, call.tag) for call in calls}) != 1:
            yield f"{step.title}: {sides} of {[(call.bytes, call.tag) for call in calls]} bytes and tag"
        return
    if len({(call.op, call.reduce_op, call.root) for call in calls}) != 1:
        yield f"{step.title}: {[(call.op, call.reduce_op, call.root) for call in calls]}"
    if step.op in ALIKE and len({_tensors(call) for call in calls}) != 1:
        yield f"{step.title}: {[_tensors(call) for call in calls]}"
    if len({call.state for call in calls}) != 1:
        yield f"{step.title}: {[call.state for call in calls]}"


def _tensors(call: Call) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((buffer.dtype, buffer.shape) for buffer in call.inputs)


def test_a_receive_from_anybody_records_who_it_was(lesson: Lesson) -> None:
    result = lesson("point_to_point/recv_any_source")
    assert result.passed, result.reason
    assert result.path is not None
    trace: Trace = read_trace(Record(path=result.path))
    # Rank r sends r numbers and one that ends it.
    assert Counter(call.peer for call in trace.ranks[0].calls if call.op == "recv") == {1: 2, 2: 3}
