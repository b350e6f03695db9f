"""Recorded calls in the notation of scenarios, and where they leave what a scenario states."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.features.calls.notation import render_call, render_calls
from lab.features.calls.pattern import CallPattern, parse_calls
from lab.features.calls.snapshot import check_calls, first_departure, matches_pattern
from lab.record.read import Record
from lab.record.result import Expectation
from lab.spec.expressions import rank_variables
from lab.trace.model import Call, Group
from lab.trace.read import read_trace
from tests.golden import golden
from tests.traces import TraceMaker

ONE, TWO = [1.0], [1.0, 2.0]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Three ranks; rank 0 does one of everything, the others two calls each."""
    maker = TraceMaker(tmp_path / "run", world_size=3)
    maker.group("7", [2, 0], desc="undefined")
    maker.mark(0, "backward", 3, 6)
    maker.call(0, "all_gather", 1, 2, [[1]], [[1], [2], [3]], dtype="int64")
    maker.call(0, "all_reduce", 4, 5, [TWO], [TWO], red="SUM")
    maker.call(0, "all_reduce", 5.2, 5.4, [TWO], [TWO], red="SUM")
    maker.call(0, "scatter", 7, 8, [ONE, ONE, ONE], [ONE], root=0)
    maker.call(0, "send", 9, 10, [TWO], peer=1, tag=4, at="train.py:77")
    maker.call(0, "broadcast", 11, 12, [TWO], [TWO], root=0, group="7")
    maker.call(0, "barrier", 13, None)
    maker.call(1, "scatter", 7, 8, [], [ONE], root=0)
    maker.call(1, "recv", 9, 10, [], [TWO], peer=0, tag=4)
    return maker.record()


def test_a_call_reads_as_a_scenario_would_state_it(record: Record) -> None:
    trace = read_trace(record)
    assert render_calls(trace.ranks[0].calls, trace.groups) == [
        "all_gather int64[1]",
        golden(1),
        "scatter 3*float32[1] from 0",
        golden(2),
        golden(3),
        "barrier",
    ]
    assert render_calls(trace.ranks[1].calls, trace.groups) == [
        "scatter float32[1] from 0",
        golden(4),
    ]


def test_what_is_rendered_is_in_the_notation_and_states_that_call(record: Record) -> None:
    trace = read_trace(record)
    for call in trace.calls:
        (pattern,) = parse_calls(render_call(call, trace.groups, phase=True))
        assert isinstance(pattern, CallPattern)
        assert matches_pattern(call, pattern, trace.groups)


@pytest.mark.parametrize(
    "other",
    [
        "broadcast", "all_reduce MAX", "all_reduce float64", "all_reduce float32[3]", "all_reduce float32[2,1]",
        "all_reduce 2*float32[2]", "all_reduce from 0", "all_reduce to 0", "all_reduce tag 1", "all_reduce in [2, 0]",
        "all_reduce during forward",
    ],
)  # fmt: skip
def test_a_call_that_differs_in_one_part_does_not_fit(record: Record, other: str) -> None:
    trace = read_trace(record)
    (pattern,) = parse_calls(other)
    assert isinstance(pattern, CallPattern)
    assert not matches_pattern(trace.ranks[0].calls[1], pattern, trace.groups)


def check(record: Record, calls: object) -> list[Expectation]:
    return list(check_calls(calls, record, rank_variables(3, 1)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "stated",
    [
        ["..."],
        ["all_gather", "...", "barrier"],
        ["...", "all_reduce during backward", "...", "broadcast in [2, 0]", "..."],
        [
            "...",
            "all_gather",
            "all_reduce x2",
            "(scatter, send) x{world_size - 2}",
            "broadcast from 2",
            "barrier",
            "...",
        ],
    ],
)
def test_calls_as_stated_are_met(record: Record, stated: list[str]) -> None:
    (found,) = check(record, {0: stated})
    assert (found.what, found.rank, found.met, found.got) == ("calls", 0, True, "as stated: 7 calls")


@pytest.mark.parametrize(
    ("stated", "expected", "got"),
    [
        (["all_gather", "all_reduce", "scatter", "..."], "scatter", "call 3: all_reduce SUM float32[2] at train.py:10"),
        (["all_gather", "all_reduce during forward", "..."], "all_reduce during forward",
         "call 2: all_reduce SUM float32[2] during backward at train.py:10"),
        (["all_gather", "all_reduce x2"], "(no call)", "call 4: scatter 3*float32[1] from 0 at train.py:10"),
        (["...", "barrier", "barrier"], "barrier", "(no call) after call 7: barrier at train.py:10"),
        (["...", "send", "recv", "..."], "recv", "call 6: broadcast float32[2] from 2 in [2, 0] at train.py:10"),
        (["...", "send", "...", "recv"], "recv", "(no such call) after call 7: barrier at train.py:10"),
        ([], "(no call)", "call 1: all_gather int64[1] at train.py:10"),
    ],
)  # fmt: skip
def test_the_first_difference_is_told(record: Record, stated: list[str], expected: str, got: str) -> None:
    (found,) = check(record, {0: stated})
    assert (found.met, found.expected, found.got) == (False, expected, got)


def test_a_list_speaks_of_every_rank(record: Record) -> None:
    found = check(record, ["...", "scatter", "send x{rank == 0}", "recv x{rank == 1}", "..."])
    assert [(one.rank, one.met) for one in found] == [(0, True), (1, True), (2, False)]
    assert found[2].got == golden(1)


def test_without_traces_the_reason_says_that_nothing_was_recorded(tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", world_size=2)
    record = maker.record()
    (record.path / "trace" / "rank1.jsonl").unlink()
    assert check(record, ["..."])[1].got == golden(1)
    (record.path / "trace" / "rank0.jsonl").unlink()
    found = check(record, {0: ["barrier"]})
    assert found[0].sentence() == (golden(2))


def test_a_trace_that_was_cut_proves_nothing(tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", world_size=1)
    maker.line(0, "cut", 1, why="the disk is full")
    (found,) = list(check_calls(["..."], maker.record(), rank_variables(1, 1)))
    assert (found.met, found.got) == (False, golden(1))


@given(
    stated=st.lists(st.sampled_from(["send", "recv", "barrier", "..."]), max_size=8), made=st.text("srb", max_size=10)
)
def test_a_sequence_fits_where_a_regular_expression_would(stated: list[str], made: str) -> None:
    ops = {"s": "send", "r": "recv", "b": "barrier"}
    calls = [Call(0, i, ops[letter], "0", None, float(i)) for i, letter in enumerate(made, 1)]
    patterns = [pattern for item in stated for pattern in parse_calls(item)]

    difference = first_departure(patterns, calls, {})

    expression = "".join(".*" if item == "..." else item[0] for item in stated)
    assert (difference is None) == bool(re.fullmatch(expression, made))
    if difference is not None and "..." not in stated:
        place = calls.index(difference.got) if difference.got else len(calls)
        assert [ops[letter] for letter in made[:place]] == stated[:place]
        assert (difference.expected.text if difference.expected else None) == (
            stated[place] if place < len(stated) else None
        )


@given(made=st.text("srb", max_size=30).map(lambda text: text * 3))
def test_calls_that_are_rendered_state_themselves_however_they_repeat(made: str) -> None:
    ops = {"s": "send", "r": "recv", "b": "barrier"}
    calls = [Call(0, i, ops[letter], "0", None, float(i), tag=1) for i, letter in enumerate(made, 1)]
    items = render_calls(calls, {"0": Group("0", (0,))})
    patterns = [pattern for item in items for pattern in parse_calls(item)]
    assert first_departure(patterns, calls, {"0": Group("0", (0,))}) is None
    assert len(patterns) == len(calls)


def test_a_training_loop_is_short() -> None:
    step = ["broadcast", "broadcast", "all_reduce"]
    calls = [Call(0, i, op, "0", None, float(i)) for i, op in enumerate(["all_gather", *step * 1000, "barrier"], 1)]
    assert render_calls(calls, {"0": Group("0", (0,), description="default_pg")}) == [
        "all_gather", golden(1), "barrier",
    ]  # fmt: skip
