"""Bytes between ranks, and exports, of real runs whose traffic is known from their scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import Cluster
from lab.record.read import Record
from lab.report.chrome import chrome_trace
from lab.report.perfetto import perfetto_trace
from lab.trace.read import read_trace
from lab.trace.steps import match
from lab.trace.traffic import matrix, operations

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"

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


def recorded(name: str, cluster: Cluster, folder: Path) -> Record:
    result = cluster.run(SCENARIOS / f"{name}.yaml", runs=folder / "runs")
    assert result.passed, result.reason
    assert result.path is not None
    return Record(path=result.path)


@pytest.mark.parametrize("name", KNOWN)
def test_the_matrix_of_a_run_is_what_its_script_sends(name: str, cluster: Cluster, tmp_path: Path) -> None:
    trace = read_trace(recorded(name, cluster, tmp_path))
    assert matrix(match(trace), trace.world_size) == KNOWN[name]


def test_a_ddp_run_sends_what_its_calls_come_to(cluster: Cluster, tmp_path: Path) -> None:
    trace = read_trace(recorded("ddp/story", cluster, tmp_path))
    rows = {row.op: row for row in operations(match(trace))}
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


@pytest.mark.parametrize("name", ["ddp/story", "collectives/all_to_all", "point_to_point/isend_irecv"])
def test_exports_of_a_run_have_a_slice_for_every_call(name: str, cluster: Cluster, tmp_path: Path) -> None:
    record = recorded(name, cluster, tmp_path)
    trace = read_trace(record)
    steps = match(trace)
    events = chrome_trace(record, trace, steps)["traceEvents"]
    slices = [event for event in events if event["ph"] == "X" and event["cat"] in ("collective", "message")]
    assert len(slices) == len(trace.calls) > 0
    assert {event["id"] for event in events if event["ph"] == "s"} == {e["id"] for e in events if e["ph"] == "f"}

    proto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    written = perfetto_trace(record, trace, steps)
    packets = proto.Trace.FromString(written).packet
    begins = [p.track_event for p in packets if p.track_event.type == proto.TrackEvent.TYPE_SLICE_BEGIN]
    assert len([b for b in begins if b.categories[0] in ("collective", "message")]) == len(trace.calls)
