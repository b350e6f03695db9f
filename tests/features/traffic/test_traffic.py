"""Bytes between ranks and bandwidths; the expected figures are worked out by hand in each test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.features.traffic.traffic import build_matrix, bus_factor, summarize_operations
from lab.operations import OPERATIONS
from lab.trace.model import Buffer, Call, Group, Trace
from lab.trace.read import read_trace
from lab.trace.steps import Step, match_steps
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


def steps_of(made: TraceMaker) -> list[Step]:
    return match_steps(read_trace(made.record()))


def test_all_reduce_exchanges_two_nths_of_the_tensor_with_everybody(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 4)
    for rank in range(4):
        made.call(rank, "all_reduce", 1, 2, [[0.0] * 6], [[0.0] * 6])
    # 24 bytes in four chunks of 6: each rank gives everybody one chunk of its own and the finished one that it made.
    assert build_matrix(steps_of(made), 4) == [[0, 12, 12, 12], [12, 0, 12, 12], [12, 12, 0, 12], [12, 12, 12, 0]]


def test_fractions_of_a_byte_add_up_over_many_calls(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    for number in range(30):
        for rank in range(3):
            made.call(rank, "all_reduce", number, number + 0.5, [[1.0]], [[3.0]])
    # 8/3 bytes thirty times are 80.
    assert build_matrix(steps_of(made), 3) == [[0, 80, 80], [80, 0, 80], [80, 80, 0]]


def test_a_gatherer_gets_what_each_has_and_all_gather_gives_it_to_all(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    for rank in range(3):
        held = [[0.0] * 2] * 3
        made.call(rank, "gather", 1, 2, [[0.0] * 2], held if rank == 1 else (), root=1)
    assert build_matrix(steps_of(made), 3) == [[0, 8, 0], [0, 0, 0], [0, 8, 0]]
    made = TraceMaker(tmp_path / "other", 3)
    for rank in range(3):
        made.call(rank, "all_gather", 1, 2, [[0.0] * 2], [[0.0] * 2] * 3)
    assert build_matrix(steps_of(made), 3) == [[0, 8, 8], [8, 0, 8], [8, 8, 0]]


def test_scatter_and_broadcast_go_out_from_the_root_and_reduce_comes_in(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    for rank in range(3):
        made.call(rank, "scatter", 1, 2, [[0.0], [1.0], [2.0]] if rank == 2 else (), [[0.0]], root=2)
    assert build_matrix(steps_of(made), 3) == [[0, 0, 0], [0, 0, 0], [4, 4, 0]]
    made = TraceMaker(tmp_path / "broadcast", 3)
    for rank in range(3):
        made.call(rank, "broadcast", 1, 2, [[1, 2, 3]], [[1, 2, 3]], dtype="int64", root=0)
    assert build_matrix(steps_of(made), 3) == [[0, 24, 24], [0, 0, 0], [0, 0, 0]]
    made = TraceMaker(tmp_path / "reduce", 3)
    for rank in range(3):
        made.call(rank, "reduce", 1, 2, [[1, 2, 3]], [[1, 2, 3]], dtype="int64", root=0)
    assert build_matrix(steps_of(made), 3) == [[0, 0, 0], [24, 0, 0], [24, 0, 0]]


def test_reduce_scatter_sends_everybody_their_part(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    for rank in range(2):
        made.call(rank, "reduce_scatter", 1, 2, [[0.0], [0.0] * 3], [[0.0] * (1 + 2 * rank)])
    assert build_matrix(steps_of(made), 2) == [[0, 12], [4, 0]]  # rank 1 is to have three floats, rank 0 one
    made = TraceMaker(tmp_path / "tensor", 2)
    for rank in range(2):
        made.call(rank, "reduce_scatter_tensor", 1, 2, [[0.0] * 4], [[0.0] * 2])
    assert build_matrix(steps_of(made), 2) == [[0, 8], [8, 0]]


def test_all_to_all_follows_its_splits(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    for rank in range(3):  # rank r sends i + 1 numbers to rank i, so it gets r + 1 from each
        made.call(
            rank, "all_to_all_single", 1, 2, [[0] * 6], [[0] * 3 * (rank + 1)],
            dtype="int64", split=[[rank + 1] * 3, [1, 2, 3]],
        )  # fmt: skip
        made.call(rank, "all_to_all_single", 3, 4, [[0] * 3], [[0] * 3], dtype="int64", split=[[], []])
    # 8 bytes a number: the first call's 1, 2, 3 numbers and the second's one each.
    assert build_matrix(steps_of(made), 3) == [[0, 24, 32], [16, 0, 32], [16, 24, 0]]
    made = TraceMaker(tmp_path / "list", 2)
    for rank in range(2):
        made.call(rank, "all_to_all", 1, 2, [[0], [0, 0]], [[0] * (rank + 1)] * 2, dtype="int64")
    assert build_matrix(steps_of(made), 2) == [[0, 16], [8, 0]]


def test_a_message_counts_where_it_arrived(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    made.call(0, "send", 1, 2, [[1.0, 2.0]], peer=1, tag=0)
    made.call(1, "recv", 1, 2, (), [[1.0, 2.0]], peer=0, tag=0)
    made.call(0, "send", 3, 4, [[1.0]], peer=2, tag=0)  # nobody receives it
    made.call(2, "send", 5, None, [[1.0]], peer=1, tag=0)  # arrives, but the sender never looks
    made.call(1, "recv", 5, 6, (), [[1.0]], peer=2, tag=0)
    assert build_matrix(steps_of(made), 3) == [[0, 8, 0], [0, 0, 0], [0, 4, 0]]


def test_a_barrier_and_a_call_that_was_refused_send_nothing(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    for rank in range(2):
        made.call(rank, "barrier", 1, 2)
        refused = made.call(rank, "all_to_all", 3, None, [[1.0], [1.0]], [[1.0], [1.0]])
        made.line(rank, "end", 4, i=refused, err="tensors of different shapes")
    assert build_matrix(steps_of(made), 2) == [[0, 0], [0, 0]]


def test_what_never_arrived_is_not_counted_nor_what_ranks_called_differently(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    made.call(0, "broadcast", 1, 2, [[1.0]], [[1.0]], root=0)
    made.call(1, "broadcast", 1, 2, [[1.0]], [[1.0]], root=0)
    made.call(0, "all_reduce", 3, 4, [[1.0]], [[1.0]])
    made.call(1, "broadcast", 3, 4, [[1.0]], [[1.0]], root=0)
    assert build_matrix(steps_of(made), 3) == [[0, 4, 0], [0, 0, 0], [0, 0, 0]]


def test_a_group_counts_its_own_ranks_only(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 4)
    made.group("1", [1, 3])
    for rank in (1, 3):
        made.call(rank, "all_reduce", 1, 2, [[1.0]], [[1.0]], group="1")
    # Two ranks: half of four bytes there, half back.
    assert build_matrix(steps_of(made), 4) == [[0, 0, 0, 0], [0, 0, 0, 4], [0, 0, 0, 0], [0, 4, 0, 0]]


def test_bandwidth_counts_from_the_entry_of_the_last_rank(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 4)
    for rank in range(4):
        made.call(rank, "all_reduce", rank, 5, [[0.0] * 1000], [[0.0] * 1000])
        made.call(rank, "all_gather", 10, 11 + rank, [[0.0] * 1000], [[0.0] * 1000] * 4)
    by_op = {row.op: row for row in summarize_operations(steps_of(made))}
    reduced = by_op["all_reduce"]
    # 4000 bytes in 2 ms (the last came at 3 ms): 2 MB/s; times 2 * 3/4.
    assert (reduced.count, reduced.finished, reduced.bytes, reduced.size, reduced.ranks) == (1, 1, 4000, 4000, 4)
    assert reduced.median_s == pytest.approx(0.002)
    assert reduced.algbw == pytest.approx(2e6)
    assert reduced.busbw == pytest.approx(3e6)
    assert reduced.waited_s == pytest.approx(0.003 + 0.002 + 0.001)
    gathered = by_op["all_gather"]
    # Four ranks of 4000 bytes make 16000, in 4 ms: 4 MB/s; times 3/4. Each of four sends 4000 to three others.
    assert (gathered.bytes, gathered.sent) == (16000, 48000)
    assert gathered.algbw == pytest.approx(4e6)
    assert gathered.busbw == pytest.approx(3e6)


def test_median_and_total_are_of_the_steps_that_finished(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    for number, took in enumerate((1, 2, 9)):
        for rank in range(2):
            made.call(rank, "broadcast", 20 * number, 20 * number + took, [[0.0] * 3], [[0.0] * 3], root=0)
    made.call(0, "broadcast", 80, None, [[0.0] * 3], root=0)
    [row] = summarize_operations(steps_of(made))
    assert (row.count, row.finished, row.bytes, row.sent) == (4, 3, 48, 36)
    assert row.median_s == pytest.approx(0.002)
    assert row.total_s == pytest.approx(0.012)
    assert row.algbw == row.busbw == pytest.approx(3000)  # 36 bytes in 12 ms


def test_rows_by_size_keep_sizes_apart(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    for number, size in enumerate((10, 10, 500)):
        for rank in range(2):
            made.call(rank, "all_reduce", 10 * number, 10 * number + 1, [[0.0] * size], [[0.0] * size])
    steps = steps_of(made)
    assert [(row.size, row.count) for row in summarize_operations(steps)] == [(None, 3)]
    assert sorted((row.size, row.count) for row in summarize_operations(steps, by_size=True)) == [(40, 2), (2000, 1)]


def test_a_barrier_has_a_time_but_no_bandwidth(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    for rank in range(2):
        made.call(rank, "barrier", 1, 3)
    [row] = summarize_operations(steps_of(made))
    assert (row.bytes, row.algbw, row.busbw) == (0, None, None)
    assert row.total_s == pytest.approx(0.002)


def test_a_message_takes_from_the_later_of_its_two_calls_to_the_end_of_the_receive(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    made.call(0, "send", 1, 50, [[0.0] * 250], peer=1, tag=0)  # waited for long after
    made.call(1, "recv", 4, 5, (), [[0.0] * 250], peer=0, tag=0)
    [row] = summarize_operations(steps_of(made))
    assert (row.op, row.count, row.bytes, row.ranks) == ("send", 1, 1000, 2)
    assert row.median_s == pytest.approx(0.001)
    assert row.algbw == row.busbw == pytest.approx(1e6)


RANKS = st.integers(1, 6)
ELEMENTS = st.integers(0, 40)


@given(ranks=RANKS, elements=ELEMENTS, op=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter_tensor",
                                                           "all_to_all_single"]))  # fmt: skip
def test_each_rank_sends_the_size_times_the_bus_factor(ranks: int, elements: int, op: str) -> None:
    give = elements * ranks if op in ("reduce_scatter_tensor", "all_to_all_single") else elements
    size = {"all_gather": elements * ranks}.get(op, give) * 4
    rows = build_matrix([one_step(op, ranks, give)], ranks)
    for row in rows:
        assert sum(row) == pytest.approx(size * (bus_factor(OPERATIONS[op], ranks) or 0), abs=ranks / 2)


@given(ranks=RANKS, elements=ELEMENTS, root=st.integers(0, 5), op=st.sampled_from(["broadcast", "reduce"]))
def test_a_rooted_call_touches_the_root_only(ranks: int, elements: int, root: int, op: str) -> None:
    root %= ranks
    rows = build_matrix([one_step(op, ranks, elements, root=root)], ranks)
    assert sum(map(sum, rows)) == 4 * elements * (ranks - 1)
    assert all(not size or root in (i, j) for i, row in enumerate(rows) for j, size in enumerate(row))


@given(sizes=st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=3, max_size=3))
def test_uneven_all_to_all_is_its_table_of_splits(sizes: list[list[int]]) -> None:
    step = one_step("all_to_all_single", 3, 0)
    for rank, row in enumerate(sizes):
        call, takes = step.calls[rank], tuple(other[rank] for other in sizes)
        call.bytes_in, call.inputs = 4 * sum(row), (Buffer("float32", (sum(row),)),)
        call.bytes_out, call.outputs = 4 * sum(takes), (Buffer("float32", (sum(takes),)),)
        call.splits = (takes, tuple(row))
    expected = [[0 if i == j else 4 * size for j, size in enumerate(row)] for i, row in enumerate(sizes)]
    assert build_matrix([step], 3) == expected


def one_step(op: str, ranks: int, give: int, **fields: Any) -> Step:
    group = Group("0", tuple(range(ranks)), description="default_pg")
    takes = {"all_gather": [give] * ranks, "reduce_scatter_tensor": [give // ranks]}.get(op, [give])
    calls = {
        rank: Call(rank=rank, index=1, op=op, group="0", seq=1, begin=0.0, end=1.0, bytes_in=4 * give,
                   bytes_out=4 * sum(takes), inputs=(Buffer("float32", (give,)),),
                   outputs=tuple(Buffer("float32", (count,)) for count in takes), **fields)
        for rank in range(ranks)
    }  # fmt: skip
    return Step(1, group, 1, calls, group.ranks)


def test_no_steps_are_no_traffic() -> None:
    empty = Trace(world_size=2, ranks={}, groups={})
    assert build_matrix(match_steps(empty), 2) == [[0, 0], [0, 0]]
    assert summarize_operations(match_steps(empty)) == []
