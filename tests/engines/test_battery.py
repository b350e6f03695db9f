"""Every operation is on record as it was called, by each recorder and in each way in which a worker starts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from lab import Result
from lab.operations import OPERATIONS
from lab.trace.model import Call, Trace
from lab.trace.steps import match_steps
from tests.engines.battery import ANY, Expected, expected_calls
from tests.engines.conftest import each_recorder, lines_of

Run = Callable[..., Result]
Lines = list[dict[str, Any]]
pytestmark = [
    pytest.mark.trains,
    pytest.mark.half,
]  # so that one process has all tests of an engine, and runs the battery once


@pytest.fixture
def battery(traced_once: Callable[..., tuple[Result, Trace]]) -> tuple[Result, Trace]:
    """The run of the battery with the recorder under test, and what was recorded."""
    result, trace = traced_once("battery.py", nodes=3)
    if [*map(int, re.findall("[0-9]+", trace.ranks[0].torch)[:2])] < [2, 12]:
        pytest.skip("needs torch 2.12: gloo has no all_to_all before")
    return result, trace


@each_recorder
def test_every_call_is_recorded_as_it_was_made(battery: tuple[Result, Trace]) -> None:
    result, trace = battery

    assert result.passed, result.reason
    assert trace.problems == []
    for rank in range(3):
        expected = expected_calls(rank)
        calls = trace.ranks[rank].calls
        assert [call.op for call in calls] == [wanted.op for wanted in expected]
        for call, wanted in zip(calls, expected, strict=True):
            compare(call, wanted)


@each_recorder
def test_the_recorders_keep_to_the_table_of_operations(battery: tuple[Result, Trace]) -> None:
    result, _ = battery
    assert result.passed, result.reason
    begun = [line for rank in range(3) for line in lines_of(result, rank) if line["k"] == "begin"]

    for line in begun:
        row = OPERATIONS[line["op"]]
        said = ("red" in line, "root" in line, "peer" in line)
        assert said == (row.reduces, row.rooted, row.sends or row.receives), line
        assert row.moves_data or not line.get("in"), line
    not_by_gloo = {"all_gather_coalesced", "all_gather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced"}
    assert {line["op"] for line in begun} >= set(OPERATIONS) - not_by_gloo


def compare(call: Call, wanted: Expected) -> None:
    assert (call.source, call.function) == (wanted.source, "<module>"), wanted
    if wanted.before is not ANY:
        assert [buffer.values for buffer in call.inputs] == wanted.before, wanted
    if wanted.after is not ANY:
        assert [buffer.values for buffer in call.outputs] == wanted.after, wanted
    found = {name: getattr(call, name) for name in wanted.more}
    assert found == wanted.more, wanted
    if "state" not in wanted.more:
        assert call.state == "completed", wanted


@each_recorder
def test_the_ranks_of_a_group_agree_on_what_it_did(battery: tuple[Result, Trace]) -> None:
    _, trace = battery

    assert sorted(group.ranks for group in trace.groups.values()) == [(0,), (0, 1, 2), (1, 2)]
    for step in match_steps(trace):
        assert step.missing == (), step
        if not step.message:
            assert len({(call.op, call.seq, call.reduce_op, call.root) for call in step.calls.values()}) == 1


@each_recorder
def test_large_tensors_are_summarised_and_larger_ones_from_a_sample(battery: tuple[Result, Trace]) -> None:
    _, trace = battery
    calls = {call.source: call for call in trace.ranks[0].calls}
    summary = calls[Expected("summary", "").source].inputs[0].summary
    sample = calls[Expected("sample", "").source].outputs[0].summary

    assert summary is not None
    assert (summary["n"], summary["min"], summary["max"]) == (1000, 0, 999)
    assert summary["norm"] == pytest.approx(sum(i * i for i in range(1000)) ** 0.5)
    assert "sampled" not in summary
    assert sample is not None
    assert (sample["n"], sample["min"]) == (10_000, 0)
    assert sample["sampled"] == 256
    assert 9900 < sample["max"] <= 9999
    for other in (trace.ranks[1], trace.ranks[2]):
        same = {call.source: call for call in other.calls}[Expected("summary", "").source].inputs[0].summary
        assert same == summary


@pytest.mark.docker
@pytest.mark.parametrize("engine", ["docker"], indirect=True)
def test_the_recorder_for_other_images_writes_what_the_compiled_one_does(run_once: Run) -> None:
    compiled, python = (run_once("battery.py", nodes=3, env={"LAB_RECORDER": name}) for name in ("auto", "python"))

    assert compiled.passed, compiled.reason
    assert python.passed, python.reason
    assert lines_of(compiled, 0)[0]["recorder"] == "compiled"
    for rank in range(3):
        assert lines_of(python, rank)[0]["recorder"] == "python"
        assert comparable(lines_of(python, rank)) == comparable(lines_of(compiled, rank))


@pytest.mark.long
@each_recorder
def test_a_cold_worker_records_what_a_warm_one_does(
    battery: tuple[Result, Trace], traced: Callable[..., tuple[Result, Trace]]
) -> None:
    (warm, _), (cold, _) = battery, traced("battery.py", nodes=3, cold=True)

    assert warm.passed, warm.reason
    assert cold.passed, cold.reason
    for rank in range(3):
        assert comparable(lines_of(cold, rank)) == comparable(lines_of(warm, rank))


@pytest.mark.long
@each_recorder
def test_calls_over_mpi_are_recorded_as_those_over_gloo(run: Run, recorder: str) -> None:
    """Its process group is written in Python, and has no backend that could be wrapped."""
    gloo, mpi = (
        run("battery.py", nodes=3, env={"LAB_RECORDER": recorder}, backend=backend) for backend in ("gloo", "mpi")
    )

    assert gloo.passed, gloo.reason
    assert mpi.passed, mpi.reason
    for rank in range(3):
        assert without_backend(lines_of(mpi, rank)) == without_backend(lines_of(gloo, rank))


def without_backend(lines: Lines) -> tuple[Lines, Lines]:
    """What does not depend on who carries the bytes: MPI needs no store, and has no monitored barrier."""
    monitored = {line["i"] for line in lines if line.get("op") == "monitored_barrier"}
    numbers = {line["i"] for line in lines if line["k"] == "begin"} - monitored
    renumbered = {number: place for place, number in enumerate(sorted(numbers))}
    groups = {line["g"]: place for place, line in enumerate(line for line in lines if line["k"] == "group")}
    kept = [
        {key: value for key, value in line.items() if key not in ("seq", "backend", "err")}
        | ({"i": renumbered[line["i"]]} if "i" in line else {})
        | ({"g": groups[line["g"]]} if "g" in line and line["k"] != "mark" else {})
        for line in lines
        if line["k"] != "store" and line.get("i") not in monitored
    ]
    return comparable(kept)


def comparable(lines: Lines) -> tuple[Lines, Lines]:
    """What does not differ between traces of the same: beginnings in order, ends in the order of their beginnings."""
    partial = {line["i"] for line in lines if line.get("op") == "reduce"}  # what it leaves elsewhere than at its root
    dropped = {"t", "late"}  # the latter is of the recorder in Python alone
    kept = [
        {
            key: plain(value)
            for key, value in line.items()
            if key not in dropped and (key != "ov" or line["i"] not in partial)
        }
        for line in lines
    ]
    begun = [line for line in kept if line["k"] not in ("start", "end", "gc")]
    ended = sorted((line for line in kept if line["k"] == "end"), key=lambda line: line["i"])
    return begun, ended


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key != "hash"}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return f"{value:.4g}" if isinstance(value, float) else value
