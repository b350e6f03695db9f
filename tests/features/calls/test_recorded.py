"""A result knows what its ranks called, and holds it against a snapshot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import Result
from lab.errors import RecordError
from lab.features.calls.snapshot import RecordedCalls, SnapshotHome
from lab.record.layout import PLAN
from tests.golden import golden
from tests.traces import TraceMaker


@pytest.fixture(autouse=True)
def at_a_desk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


def result(folder: Path, *ops: str, verdict: str = "passed") -> Result:
    """That of a run in which two ranks called these operations."""
    made = TraceMaker(folder / "runs" / f"run-{'-'.join(ops)}", 2)
    for rank in range(2):
        for number, op in enumerate(ops):
            made.call(rank, op, 10 * number, 10 * number + 5, at=f"train.py:{number + 1}")
    record = made.record(result={"verdict": verdict, "reason": "so it went"})
    plan = json.loads((record.path / PLAN).read_text())
    size = {"nnodes": 1, "nproc_per_node": 2, "script": str(folder / "train.py")}
    (record.path / PLAN).write_text(json.dumps({**plan, **size}))
    return Result.load(record.path)


def test_calls_are_read_by_rank_and_show_themselves(tmp_path: Path) -> None:
    calls = result(tmp_path, "all_reduce", "barrier", "barrier").calls
    assert calls[1] == ("all_reduce", "barrier", "barrier")
    assert sorted(calls) == [0, 1]
    assert repr(calls) == golden(1)


def test_a_snapshot_is_written_beside_the_script_and_then_compared(tmp_path: Path) -> None:
    assert result(tmp_path, "all_reduce").calls.matches_snapshot()
    assert (tmp_path / "train.1x2.calls.txt").is_file()
    other = result(tmp_path, "all_reduce", "barrier").calls
    with pytest.raises(AssertionError) as told:
        other.matches_snapshot()
    assert str(told.value) == (golden(1))
    assert other.matches_snapshot(update=True)
    assert other.matches_snapshot()


def test_a_run_that_did_not_pass_has_no_snapshot_and_says_how_it_went(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=golden(1)):
        result(tmp_path, "barrier", verdict="failed").calls.matches_snapshot()


def test_in_ci_one_that_is_missing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(AssertionError, match=golden(1)):
        result(tmp_path, "barrier").calls.matches_snapshot(tmp_path / "mine.txt")


@pytest.fixture
def in_a_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SnapshotHome]:
    (tmp_path / "tests").mkdir()
    home = SnapshotHome(file=tmp_path / "tests" / "test_train.py", name="test_ring", how="`pytest --lab-update`")
    monkeypatch.setattr(RecordedCalls, "home", home)
    return home


def test_in_a_test_it_lies_beside_the_test_and_each_run_has_its_own(tmp_path: Path, in_a_test: SnapshotHome) -> None:
    first, second = result(tmp_path, "barrier"), result(tmp_path, "all_reduce")
    for one in (first, first, second, second):
        assert one.calls.matches_snapshot()
    first.calls.matches_snapshot("named.calls.txt")
    names = ["named.calls.txt", "test_train.test_ring-2.1x2.calls.txt", "test_train.test_ring.1x2.calls.txt"]
    assert sorted(path.name for path in in_a_test.file.parent.iterdir()) == names
    with pytest.raises(AssertionError, match=golden(1)):
        second.calls.matches_snapshot("named.calls.txt")


def test_without_a_record_there_is_nothing_to_compare() -> None:
    with pytest.raises(RecordError, match="has no record"):
        Result(verdict="passed").calls.matches_snapshot()
