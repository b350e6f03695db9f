"""Runs held against earlier ones of the same scenarios."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.errors import RecordError
from lab.features.compare.baseline import Baseline, compare_with_runs, speed_of
from lab.features.compare.compare import baseline_text
from lab.features.records.records import earlier_records
from lab.record.layout import PLAN
from lab.record.read import Record
from lab.report.style import Style
from tests.golden import golden
from tests.traces import TraceMaker

PLAIN = Style(colour=False)


def ran(
    folder: Path,
    name: str,
    *,
    seconds: float = 1.0,
    sizes: Sequence[int] = (8, 8),
    scenario: str = "ring",
    engine: str = "local",
    verdict: str = "passed",
    traced: bool = True,
    **plan: Any,
) -> Record:
    """A run of two ranks that reduces tensors of so many floats."""
    made = TraceMaker(folder / name, 2)
    for rank in range(2):
        for number, size in enumerate(sizes):
            at = 10 * number
            made.call(rank, "all_reduce", at, at + 5, [[0.0] * size], [[0.0] * size], red="SUM", at=f"r.py:{number}")
    if not traced:
        made.lines = {}
    record = made.record(result={"verdict": verdict, "duration_s": seconds})
    known = json.loads((record.path / PLAN).read_text())
    size = {"scenario": scenario, "engine": engine, "nnodes": 2, "nproc_per_node": 1}
    (record.path / PLAN).write_text(json.dumps({**known, **size, **plan}))
    return record


def held(before: Sequence[Record], after: Sequence[Record]) -> Baseline:
    return compare_with_runs(before, after, "main")


def text(before: Sequence[Record], after: Sequence[Record]) -> list[str]:
    return baseline_text(held(before, after), PLAIN).splitlines()


def test_runs_that_are_as_before_are_counted(tmp_path: Path) -> None:
    found = held([ran(tmp_path, "a")], [ran(tmp_path, "b", seconds=1.1)])
    assert found.exit_code == 0
    assert baseline_text(found, PLAIN) == golden(1)


def test_what_sends_more_and_is_called_otherwise_is_told_from_one_run_on_each_side(tmp_path: Path) -> None:
    before, after = [ran(tmp_path, "a")], [ran(tmp_path, "b", sizes=(8, 16, 8))]
    assert held(before, after).exit_code == 1
    assert text(before, after) == [
        golden(1),
        "✘ ring on 2 x 1",
        golden(2),
        golden(3),
    ]


def test_one_slow_pair_is_told_as_that_and_fails_nothing(tmp_path: Path) -> None:
    before, after = [ran(tmp_path, "a")], [ran(tmp_path, "b", seconds=3)]
    assert held(before, after).exit_code == 0
    assert text(before, after)[-1] == (golden(1))


def test_three_runs_on_each_side_that_lie_apart_are_slower(tmp_path: Path) -> None:
    before = [ran(tmp_path, f"a{i}", seconds=1 + i / 10) for i in range(3)]
    after = [ran(tmp_path, f"b{i}", seconds=1.5 + i / 10) for i in range(3)]
    assert held(before, after).exit_code == 1
    assert text(before, after)[-1] == golden(1)


def test_times_on_another_engine_are_not_compared_but_calls_are(tmp_path: Path) -> None:
    before, after = [ran(tmp_path, "a", engine="docker")], [ran(tmp_path, "b", seconds=9, sizes=(8,))]
    lines = text(before, after)
    assert not any("slower" in line for line in lines)
    assert any("skips all_reduce" in line for line in lines)
    assert any(golden(1) in line for line in lines)


def test_other_sizes_arguments_and_scenarios_are_other_cases(tmp_path: Path) -> None:
    before = [ran(tmp_path, "a"), ran(tmp_path, "b", scenario="tree"), ran(tmp_path, "c", verdict="failed")]
    after = [ran(tmp_path, "d", sizes=(1,), nnodes=1, nproc_per_node=2), ran(tmp_path, "e", scenario="tree")]
    found = held(before, after)
    assert [case.name for case in found.cases] == ["tree on 2 x 1"]
    assert found.new == ("ring on 1 x 2",)


def test_a_program_that_varied_before_is_not_held_to_one_of_its_ways(tmp_path: Path) -> None:
    before = [ran(tmp_path, "a", sizes=(8, 4)), ran(tmp_path, "b", sizes=(4, 8))]
    assert held(before, [ran(tmp_path, "c", sizes=(8, 4))]).exit_code == 0
    [case] = held(before, [ran(tmp_path, "d", sizes=(6, 6))]).cases
    assert (case.calls, case.worse) == ((), False)
    assert case.notes == (golden(1),)


def test_runs_without_a_trace_are_compared_by_their_times_alone(tmp_path: Path) -> None:
    [case] = held([ran(tmp_path, "a", traced=False)], [ran(tmp_path, "b")]).cases
    assert (case.worse, case.notes) == (False, (golden(1),))


def test_the_runs_of_now_are_not_their_own_baseline(tmp_path: Path) -> None:
    now = ran(tmp_path, "b")
    assert held([ran(tmp_path, "a"), now], [now]).cases[0].runs == (("a",), ("b",))
    assert held([now], [now]).cases == ()


def test_earlier_runs_are_named_by_a_folder_a_suite_or_a_run(tmp_path: Path) -> None:
    turns = [{"suite": "s1", "number": number, "of": 2} for number in (1, 2)]
    for name, turn in zip("ab", turns, strict=True):
        ran(tmp_path, name, turn=turn)
    ran(tmp_path, "c")

    def names(word: str) -> list[str]:
        return sorted(record.run for record in earlier_records(word, tmp_path))

    assert names(str(tmp_path)) == ["a", "b", "c"]
    assert names("s1") == names("a") == ["a", "b"]
    assert names("c") == names(str(tmp_path / "c")) == ["c"]
    (tmp_path / "empty").mkdir()
    for word in ("nothing", str(tmp_path / "empty")):
        with pytest.raises(RecordError):
            earlier_records(word, tmp_path)


TIMES = st.lists(st.floats(0.01, 10), min_size=1, max_size=12)


@given(TIMES, TIMES)
def test_what_is_called_slower_is_never_so_the_other_way_round(before: list[float], after: list[float]) -> None:
    if speed_of(before, after, 0.2) == "slower":
        assert min(len(before), len(after)) >= 3
        assert speed_of(after, before, 0.2) == ""


@given(TIMES)
def test_nothing_is_slower_than_itself(times: list[float]) -> None:
    assert speed_of(times, times, 0.0) == ""
