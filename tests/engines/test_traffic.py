"""Bytes between ranks, and exports, of real runs whose traffic is known from their scripts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lab import Cluster, Result
from lab.features.compare.compare import compare_runs
from lab.features.export.tracks import chrome_trace
from lab.features.traffic.traffic import build_matrix, summarize_operations
from lab.record.read import Record
from lab.spec.load import scenario_from_script
from lab.trace.read import read_trace
from lab.trace.steps import match_steps
from tests.engines.lessons import FILES, LIBRARY, PATIENCE_S, Lesson, on_engines

KNOWN = {
    # Rank 0 hands one float to each of two others.
    "scatter": [[0, 4, 4], [0, 0, 0], [0, 0, 0]],
    # Each of the others gives rank 0 two int64.
    "collectives/gather": [[0, 0, 0], [16, 0, 0], [16, 0, 0]],
    # One int64 to everybody. The uneven second call is refused and sends nothing.
    "collectives/all_to_all": [[0, 8, 8], [8, 0, 8], [8, 8, 0]],
    # A count to everybody (8 bytes), i + 1 tokens to rank i, and on the way home r + 1 from rank r to each.
    "collectives/all_to_all_single": [
        [0, 8 + 2 * 8 + 1 * 8, 8 + 3 * 8 + 1 * 8],
        [8 + 1 * 8 + 2 * 8, 0, 8 + 3 * 8 + 2 * 8],
        [8 + 1 * 8 + 3 * 8, 8 + 2 * 8 + 3 * 8, 0],
    ],
    # Two floats from rank 0 to the others, then two from rank 2.
    "collectives/broadcast": [[0, 8, 8], [0, 0, 0], [8, 8, 0]],
    # Rank 0 sends each other rank two int64.
    "point_to_point/tags": [[0, 16, 16], [0, 0, 0], [0, 0, 0]],
    # Four chunks of two int64 to the right; the built-in all_reduce of six: 2 * 48 / 3 bytes to each.
    "point_to_point/ring_all_reduce": [[0, 64 + 32, 32], [32, 0, 64 + 32], [64 + 32, 32, 0]],
    # Eight operations on three int64 (AVG on three float64): 2 * 24 / 3 bytes to each, eight times.
    "collectives/all_reduce": [[0, 128, 128], [128, 0, 128], [128, 128, 0]],
}


def recorded(result: Result) -> Record:
    assert result.passed, result.reason
    assert result.path is not None
    return Record(path=result.path)


@pytest.mark.local_first
@on_engines(KNOWN)
def test_the_matrix_of_a_run_is_what_its_script_sends(name: str, lesson: Lesson) -> None:
    trace = read_trace(recorded(lesson(name)))
    assert build_matrix(match_steps(trace), trace.world_size) == KNOWN[name]


@pytest.mark.local_first
def test_a_ddp_run_sends_what_its_calls_come_to(lesson: Lesson) -> None:
    trace = read_trace(recorded(lesson("ddp/story")))
    rows = {row.op: row for row in summarize_operations(match_steps(trace))}
    # 1017005 floats in one bucket, then twice in two; of two ranks each sends as much as the tensor holds.
    assert (rows["all_reduce"].count, rows["all_reduce"].bytes) == (5, 3 * 4 * 1017005)
    assert rows["all_reduce"].sent == 2 * rows["all_reduce"].bytes
    # Sizes and strides, parameters, and the two of the new buckets: from rank 0 to the one other.
    assert rows["broadcast"].bytes == rows["broadcast"].sent == 18 * 8 + 4 * 1017005 + 7 * 4 + 2 * 4
    assert rows["all_gather"].bytes == 2 * 8
    assert rows["barrier"].busbw is None
    for row in rows.values():
        assert row.finished == row.count
        assert row.total_s > 0
    assert rows["all_reduce"].busbw == pytest.approx(rows["all_reduce"].algbw)  # 2 (n-1) / n is 1 for two ranks


@pytest.mark.local_first
@on_engines(["ddp/story", "collectives/all_to_all", "point_to_point/isend_irecv"])
def test_exports_of_a_run_have_a_slice_for_every_call(name: str, lesson: Lesson) -> None:
    record = recorded(lesson(name))
    trace = read_trace(record)
    steps = match_steps(trace)
    events = json.loads(chrome_trace(record, trace, steps))["traceEvents"]
    slices = [event for event in events if event["ph"] == "X" and event["cat"] in ("collective", "message")]
    assert len(slices) == len(trace.calls) > 0
    assert {event["id"] for event in events if event["ph"] == "s"} == {e["id"] for e in events if e["ph"] == "f"}


@pytest.mark.local_first
def test_two_runs_of_a_scenario_are_told_to_be_the_same(lesson: Lesson, cluster: Cluster, tmp_path: Path) -> None:
    again = cluster.run(FILES["ddp/toy_loop"], runs=tmp_path / "runs", timeout_s=PATIENCE_S)
    runs = [recorded(result) for result in (lesson("ddp/toy_loop"), again)]
    found = compare_runs(runs[0], runs[1], (read_trace(runs[0]), read_trace(runs[1])))
    assert found.identical, (found.settings, found.sequence)
    assert found.calls[0] == found.calls[1] > 0


@pytest.mark.trains
@pytest.mark.local_first
def test_a_larger_model_shows_in_arguments_calls_and_bytes(cluster: Cluster, tmp_path: Path) -> None:
    runs = []
    for hidden in ("10", "20"):
        scenario = scenario_from_script(LIBRARY / "ddp" / "large_model.py")
        scenario = replace(scenario, args=("--hidden", hidden))
        runs.append(recorded(cluster.run(scenario, nodes=2, runs=tmp_path / "runs")))
    found = compare_runs(runs[0], runs[1], (read_trace(runs[0]), read_trace(runs[1])))
    assert [(one.name, one.before, one.after) for one in found.settings] == [
        ("arguments", "--hidden 10", "--hidden 20")
    ]
    reduced = next(one for one in found.operations if one.name == "all_reduce")
    assert reduced.before is not None
    assert reduced.after is not None
    # Two trainings of three steps; 10 n + n + n n + n + 5 n + 5 floats are 275 and 745, and each rank sends them once.
    assert (reduced.before.count, reduced.before.bytes) == (6, 2 * 6 * 4 * 275)
    assert (reduced.after.count, reduced.after.bytes) == (6, 2 * 6 * 4 * 745)
    assert {rank for one in found.sequence for rank in one.ranks} == {0, 1}
