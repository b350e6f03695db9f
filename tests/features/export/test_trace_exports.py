"""Chrome's format: read back, and compared with the trace it comes from."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.features.compare.compare import compare_runs
from lab.features.export.tracks import chrome_trace, make_tracks
from lab.features.export.verb import trace_json, traffic_text
from lab.record.layout import EVENTS, INDEX, LOGS, TRACE, rank_log, rank_trace
from lab.record.read import Record
from lab.report.style import Style
from lab.trace.read import read_trace
from lab.trace.steps import match_steps
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit

CALLS = {0: 5, 1: 5, 2: 4}


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Three ranks on two nodes: phases, two all_reduces that overlap, a barrier, a message, one call without an end."""
    made = TraceMaker(tmp_path / "run", 3, nproc_per_node=2)
    for rank in range(3):
        made.mark(rank, "forward", 1, 3)
        made.mark(rank, "backward", 3, 10)
        made.call(rank, "all_reduce", 4 + rank, 9, [[1.0] * 1000], [[1.0] * 1000], **{"async": True})
        made.call(rank, "all_reduce", 7 + rank / 2, 12, [[1.0] * 10], [[1.0] * 10], **{"async": True})
        made.call(rank, "barrier", 13 + rank, 17)
    made.call(0, "send", 20, 21, [[1.0]], peer=1, tag=0)
    made.call(1, "recv", 19, 22, (), [[1.0]], peer=0, tag=0)
    made.call(0, "broadcast", 24, 26, [[1.0]], root=0)
    made.call(1, "broadcast", 24, None, [[1.0]], root=0)
    made.call(2, "broadcast", 25, 26, [[1.0]], root=0)
    record = made.record()
    note = {"event": "note", "rank": 1, "name": "loss", "value": 0.5, "time": 1_700_000_000.005}
    (record.path / EVENTS).write_text(json.dumps(note) + "\n")
    (record.path / LOGS / rank_log(2)).write_bytes(b"hello\n")
    (record.path / INDEX).write_text("[2,1,0,6,1700000000.007]\n")
    return record


def chrome(record: Record) -> list[dict[str, Any]]:
    trace = read_trace(record)
    data = json.loads(chrome_trace(record, trace, match_steps(trace)))
    return list(data["traceEvents"])


def test_chrome_has_a_slice_for_each_call_and_each_phase(record: Record) -> None:
    events = chrome(record)
    kinds = Counter(event["cat"] for event in events if event["ph"] == "X")
    assert kinds["collective"] + kinds["message"] == sum(CALLS.values())
    assert kinds["message"] == 2
    assert kinds["phase"] == 6


def test_chrome_has_a_process_for_each_node_and_a_thread_for_each_rank(record: Record) -> None:
    names = {(e["name"], e["pid"], e["args"]["name"]) for e in chrome(record) if e["name"].endswith("_name")}
    assert {("process_name", 1, "node0"), ("process_name", 2, "node1")} <= names
    assert {("thread_name", 1, "rank 0"), ("thread_name", 1, "rank 1"), ("thread_name", 2, "rank 2")} <= names


def test_times_are_microseconds_from_the_first_line(record: Record) -> None:
    barriers = [(e["ts"], e["dur"]) for e in chrome(record) if e["ph"] == "X" and e["name"] == "barrier #3"]
    assert sorted(barriers) == [(13000.0, 4000.0), (14000.0, 3000.0), (15000.0, 2000.0)]


def test_slices_of_a_track_lie_inside_each_other_or_apart(record: Record) -> None:
    trace = read_trace(record)
    tracks = make_tracks(record, trace, match_steps(trace))
    # Phases, calls, and the second all_reduce of each rank, which overlaps the first.
    assert Counter(track.name[: len("rank 0")] for track in tracks) == {"rank 0": 3, "rank 1": 3, "rank 2": 3}
    for track in tracks:
        open_until: list[int] = []
        for one in track.slices:
            while open_until and open_until[-1] <= one.begin:
                open_until.pop()
            assert not open_until or one.end <= open_until[-1], one
            open_until.append(one.end)


def test_every_arrow_has_two_ends_and_points_to_what_begins_later(record: Record) -> None:
    events = chrome(record)
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    # Two from the last rank of each all_reduce and of the barrier, one message; the broadcast that one rank never
    # finished has two: everybody had entered.
    assert len(starts) == 2 + 2 + 2 + 1 + 2
    assert starts.keys() == ends.keys()
    assert all(starts[number]["ts"] <= ends[number]["ts"] for number in starts)


def test_an_arrow_goes_from_the_send_to_its_receive(record: Record) -> None:
    events = chrome(record)
    begins = {(e["pid"], e["tid"], e["ts"]): e["name"] for e in events if e["ph"] == "X"}
    ends = {e["id"]: begins[e["pid"], e["tid"], e["ts"]] for e in events if e["ph"] == "f"}
    [number] = [e["id"] for e in events if e["ph"] == "s" and begins[e["pid"], e["tid"], e["ts"]] == "send → 1"]
    assert ends[number] == "ready"
    waits = [e for e in events if e["ph"] == "X" and e["name"] == "waiting for rank 0" and e["ts"] == 19000.0]
    assert [wait["dur"] for wait in waits] == [pytest.approx(1000.0, abs=0.01)]


def test_json_holds_the_whole_trace(record: Record) -> None:
    trace = read_trace(record)
    data = json.loads(json.dumps(trace_json(record, trace, match_steps(trace))))
    assert data["world_size"] == 3
    assert [rank["node"] for rank in data["ranks"]] == ["node0", "node0", "node1"]
    assert sum(len(step["calls"]) for step in data["steps"]) == sum(CALLS.values())
    assert [step["op"] for step in data["steps"]] == ["all_reduce", "all_reduce", "barrier", "send", "broadcast"]
    message = data["steps"][3]
    assert (message["source"], message["destination"], message["bytes"]) == (0, 1, 4)
    assert message["calls"][1]["outputs"] == [{"dtype": "float32", "shape": [1], "values": [1.0], "summary": None}]
    assert data["steps"][4]["state"] == "unfinished"
    assert [row["count"] for row in data["operations"] if row["op"] == "all_reduce"] == [2]
    assert sorted(row["size"] for row in data["operations_by_size"] if row["op"] == "all_reduce") == [40, 4000]
    assert {mark["name"] for mark in data["marks"]} == {"forward", "backward"}
    assert data["clock"]["origin_unix_s"] == pytest.approx(1_700_000_000)


@settings(max_examples=60, deadline=None)
@given(rank=st.integers(0, 1), keep=st.floats(0, 1))
def test_a_trace_that_is_cut_short_anywhere_is_still_shown(rank: int, keep: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = TraceMaker(Path(folder) / "run", 2)
        for one in range(2):
            made.mark(one, "backward", 1, 9)
            made.call(one, "all_reduce", 2, 4 + one, [[1.0] * 9], [[1.0] * 9], **{"async": True})
            made.call(one, "barrier", 10, 11)
        made.call(0, "send", 12, 13, [[1.0]], peer=1, tag=0)
        made.call(1, "recv", 12, 13, (), [[1.0]], peer=0, tag=0)
        record = made.record()
        path = record.path / TRACE / rank_trace(rank)
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole) * keep)])
        trace = read_trace(record)
        steps = match_steps(trace)
        events = json.loads(chrome_trace(record, trace, steps))["traceEvents"]
        shown = [e for e in events if e["ph"] == "X" and e["cat"] in ("collective", "message")]
        assert len(shown) == len(trace.calls)
        assert all(event["dur"] >= 0 for event in shown)
        assert {e["id"] for e in events if e["ph"] == "s"} == {e["id"] for e in events if e["ph"] == "f"}
        assert sum(len(step["calls"]) for step in trace_json(record, trace, steps)["steps"]) == len(trace.calls)
        assert "run" in traffic_text(record.run, trace, steps, Style(colour=False))
        compare_runs(record, record, (trace, trace))
