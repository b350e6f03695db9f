from __future__ import annotations

from pathlib import Path

import pytest

from lab.record.layout import TRACE
from lab.trace.read import read_trace
from lab.trace.steps import match_steps
from tests.diagnosis.facts import stopped, write_events
from tests.golden import golden
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


def test_a_collective_is_put_together_from_the_calls_of_its_ranks(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    for rank, begin in enumerate((1.0, 2.0, 7.0)):
        made.call(rank, "all_reduce", begin, 8.0 + rank, [[float(rank)]], [[3.0]], red="SUM")
    trace = read_trace(made.record())
    assert trace.problems == []
    [step] = match_steps(trace)
    assert (step.title, step.missing, step.last, step.state) == ("all_reduce #1", (), 2, "completed")
    assert step.ready == pytest.approx(0.007)
    assert step.end == pytest.approx(0.010)
    assert step.waited == pytest.approx({0: 0.006, 1: 0.005, 2: 0.0})
    call = step.calls[1]
    assert call.inputs[0].values == [1.0]
    assert call.outputs[0].values == [3.0]
    assert (call.bytes_in, call.bytes_out, call.is_inplace, call.reduce_op) == (4, 4, True, "SUM")


def test_roots_and_peers_are_global_ranks(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 4)
    made.group("7", [1, 3], 0.5)
    for rank in (1, 3):
        made.call(rank, "broadcast", 1, 2, [[1.0]], [[1.0]], group="7", root=1)
    made.call(1, "send", 3, 4, [[1.0]], group="7", peer=1, tag=0)
    made.call(3, "recv", 3, 4, (), [[1.0]], group="7", peer=0, tag=0)
    first, second = match_steps(read_trace(made.record()))
    assert (first.source, first.group.ranks, first.title) == (3, (1, 3), "broadcast #1 in [1, 3]")
    assert (second.source, second.destination, second.title) == (1, 3, "send 1 → 3 in [1, 3]")
    assert set(second.calls) == {1, 3}


def test_who_never_entered_is_missing(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    for rank in (0, 1):
        made.call(rank, "all_reduce", 1, None, [[1.0]])
    [step] = match_steps(read_trace(made.record()))
    assert (step.missing, step.state, step.ready, step.end, step.last) == ((2,), "unfinished", None, None, None)


def test_a_receive_from_any_rank_is_matched_by_who_it_received_from(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    made.call(1, "send", 1, 2, [[1.0]], peer=0, tag=0)
    made.call(2, "send", 1, 2, [[2.0]], peer=0, tag=0)
    index = made.call(0, "recv", 1, None, (), [[2.0]], peer=-1, tag=0)
    made.line(0, "end", 3, i=index, ov=[[2.0]], peer=2)
    steps = {step.title: step for step in match_steps(read_trace(made.record()))}
    assert steps["send 2 → 0"].missing == ()
    assert steps["send 1 → 0"].missing == (0,)


def test_messages_with_one_tag_keep_their_order_and_tags_do_not_mix(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    for n, tag in enumerate((5, 5, 6)):
        made.call(0, "send", 1 + n, 2 + n, [[float(n)]], peer=1, tag=tag)
    for n, tag in enumerate((6, 5, 5)):
        made.call(1, "recv", 10 + n, 11 + n, (), [[float((2, 0, 1)[n])]], peer=0, tag=tag)
    for step in match_steps(read_trace(made.record())):
        assert step.calls[0].inputs[0].values == step.calls[1].outputs[0].values


def test_a_second_group_of_the_same_name_is_another_group(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    for rank in range(3):
        made.call(rank, "barrier", 1, 2)
    made.group("0", [0, 1], 3, desc="default_pg")
    for rank in (0, 1):
        made.call(rank, "barrier", 4, 5, seq=1)
    steps = match_steps(read_trace(made.record()))
    assert [step.group.ranks for step in steps] == [(0, 1, 2), (0, 1)]
    assert all(not step.missing for step in steps)


def test_a_damaged_trace_opens_and_says_what_is_missing(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    for rank in range(3):
        made.call(rank, "barrier", 1, 2)
        made.call(rank, "all_reduce", 3, 4, [[1.0]])
    record = made.record()
    whole = (record.path / TRACE / "rank0.jsonl").read_bytes()
    (record.path / TRACE / "rank0.jsonl").write_bytes(whole[:-30])
    (record.path / TRACE / "rank1.jsonl").write_bytes(whole.replace(b'"op":"barrier"', b'"op":\xff'))
    (record.path / TRACE / "rank2.jsonl").unlink()
    trace = read_trace(record)
    assert len(trace.ranks[0].calls) == 2
    assert [call.op for call in trace.ranks[1].calls] == ["all_reduce"]
    assert trace.ranks[2].calls == []
    assert any("rank 0" in problem for problem in trace.problems)
    assert golden(1) in trace.problems
    assert golden(2) in trace.problems


def test_what_fails_after_the_run_was_stopped_had_not_ended(tmp_path: Path) -> None:
    """As where a rank sees its peer die by the stop of the run, before it is stopped itself."""
    made = TraceMaker(tmp_path / "run", 2)
    for rank, (failed, ended) in enumerate(((2.0, 7999.0), (8001.0, 8002.0))):
        made.line(rank, "end", failed, i=made.call(rank, "all_reduce", 1, None, [[1.0]]), err="peer closed")
        made.call(rank, "barrier", 3, ended)
    write_events(made, {"event": "timed out", "time": 1_700_000_008.0}, stopped(0), stopped(1))
    first, second = (rank.calls for rank in read_trace(made.record()).ranks.values())
    assert [(call.state, call.error) for call in first] == [("failed", "peer closed"), ("completed", "")]
    assert [(call.state, call.error) for call in second] == [("unfinished", ""), ("unfinished", "")]


def test_what_begins_after_the_run_was_stopped_is_left_out(tmp_path: Path) -> None:
    """As where the signal that asks for the stack ends a sleep in native code, so that the rank goes on."""
    made = TraceMaker(tmp_path / "run", 2)
    for rank, began in enumerate((4.0, 8001.0)):
        made.call(rank, "barrier", 1, 2)
        made.call(rank, "all_reduce", began, 8002.0, [[1.0]])
    write_events(made, {"event": "timed out", "time": 1_700_000_008.0}, stopped(0), stopped(1))
    first, second = (rank.calls for rank in read_trace(made.record()).ranks.values())
    assert [(call.op, call.state) for call in first] == [("barrier", "completed"), ("all_reduce", "unfinished")]
    assert [(call.op, call.state) for call in second] == [("barrier", "completed")]


@pytest.mark.parametrize("cut", range(0, 1200, 37))
def test_a_trace_cut_anywhere_opens(tmp_path: Path, cut: int) -> None:
    made = TraceMaker(tmp_path / "run", 1)
    for start in range(1, 5):
        made.call(0, "all_reduce", start, start + 0.5, [[1.0]])
    record = made.record()
    path = record.path / TRACE / "rank0.jsonl"
    path.write_bytes(path.read_bytes()[:-cut] if cut else path.read_bytes())
    trace = read_trace(record)
    assert len(trace.ranks[0].calls) <= 4
    assert bool(trace.problems) == bool(cut)


def test_a_rank_that_was_left_out_of_a_group_comes_to_the_same_name_for_the_next_one(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)  # three jobs, one after the other, with all ranks, with two, with all again
    for rank in range(3):
        made.call(rank, "barrier", 1, 2)
    made.group("0", [0, 1], 3, desc="default_pg")
    for rank in (0, 1):
        made.seqs[rank, "0"] = 0
        made.call(rank, "barrier", 4, 5)
    made.group("0", range(3), 6, desc="default_pg")
    for rank in range(3):
        made.seqs[rank, "0"] = 0
        made.call(rank, "barrier", 7, 8)
    first, second, third = match_steps(read_trace(made.record()))
    assert [step.group.ranks for step in (first, second, third)] == [(0, 1, 2), (0, 1), (0, 1, 2)]
    assert [sorted(step.calls) for step in (first, second, third)] == [[0, 1, 2], [0, 1], [0, 1, 2]]
    assert {step.state for step in (first, second, third)} == {"completed"}
