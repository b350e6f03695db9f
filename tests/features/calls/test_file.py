"""The file beside a scenario that says what its ranks call."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import RankFacts, RunFacts
from lab.errors import LabError, UsageError
from lab.features.calls.snapshot import SnapshotFile, compare_snapshot, locate_snapshot, with_stated_calls
from lab.record.result import Expectation
from lab.spec.scenario import Expect, Scenario
from tests.golden import golden
from tests.traces import TraceMaker

STEP = ("all_reduce", "broadcast", "barrier")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SnapshotFile:
    monkeypatch.delenv("CI", raising=False)
    return locate_snapshot(tmp_path / "ring.yaml", 2, 1)


def run(folder: Path, calls: dict[int, tuple[str, ...]], ended: bool = True) -> Evidence:
    made = TraceMaker(folder, len(calls))
    for rank, ops in calls.items():
        for number, op in enumerate(ops):
            made.call(rank, op, 10 * number, 10 * number + 5, at=f"ring.py:{number + 1}")
    end = {"ended": 2.0, "code": 0} if ended else {"ended": 2.0, "stopped": True}
    ranks = [RankFacts(rank=rank, node=f"node{rank}", started=1.0, **end) for rank in calls]  # type: ignore[arg-type]
    return Evidence(facts=RunFacts(ranks=ranks), record=made.record())


def held(
    file: SnapshotFile, evidence: Evidence, *, update: bool | None = None, fine: bool = True
) -> list[tuple[bool, str]]:
    found = compare_snapshot(file, evidence, update=update, fine=fine)
    assert all(one.what == "snapshot" and one.expected == file.name for one in found)
    return [(one.met, one.got) for one in found]


def test_the_first_run_writes_and_the_next_compares(tmp_path: Path, file: SnapshotFile) -> None:
    first, other = run(tmp_path / "a", {0: STEP, 1: STEP}), run(tmp_path / "b", {0: STEP, 1: STEP[:1] + STEP})
    assert file.path == tmp_path / "ring.2x1.calls.txt"
    assert held(file, first) == [(True, golden(1))]
    assert file.path.read_text() == (golden(2))
    assert held(file, first) == [(True, golden(3))]
    one_more = "rank 1 makes one more all_reduce between calls 1 and 2, at ring.py:2"
    assert held(file, other) == [(False, one_more)]
    assert held(file, other, update=True) == [(True, f"written again: {one_more}")]
    assert held(file, other) == [(True, golden(4))]
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".new")]


@pytest.mark.parametrize(("ci", "update"), [("true", None), ("1", None), ("", False), ("true", False)])
def test_in_ci_a_missing_snapshot_is_a_failure_that_says_how_to_write_it(
    tmp_path: Path, file: SnapshotFile, monkeypatch: pytest.MonkeyPatch, ci: str, update: bool | None
) -> None:
    monkeypatch.setenv("CI", ci)
    [(met, got)] = held(file, run(tmp_path / "a", {0: STEP}), update=update)
    assert not met
    assert got.startswith(golden(1))
    assert not file.path.exists()


def test_in_ci_it_is_written_where_that_is_asked_for(
    tmp_path: Path, file: SnapshotFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    assert held(file, run(tmp_path / "a", {0: STEP}), update=True) == [(True, golden(1))]


@pytest.mark.parametrize("update", [True, None])
def test_of_a_run_that_is_not_as_expected_no_snapshot_is_made(
    tmp_path: Path, file: SnapshotFile, update: bool | None
) -> None:
    [(met, got)] = held(file, run(tmp_path / "a", {0: STEP}), update=update, fine=False)
    assert (met, got) == (False, golden(1))
    assert not file.path.exists()


def test_a_run_that_did_not_end_is_compared_as_far_as_it_came(tmp_path: Path, file: SnapshotFile) -> None:
    held(file, run(tmp_path / "a", {0: STEP, 1: STEP}))
    short = run(tmp_path / "b", {0: STEP[:1], 1: STEP[:2]}, ended=False)
    assert held(file, short, fine=False) == [(False, golden(1))]
    other = run(tmp_path / "c", {0: STEP[:1], 1: STEP[1:2]}, ended=False)
    assert held(file, other, fine=False) == [(False, golden(2))]


def test_a_damaged_file_is_named_with_its_line_and_can_be_written_anew(tmp_path: Path, file: SnapshotFile) -> None:
    evidence = run(tmp_path / "a", {0: STEP})
    file.path.write_text("rank 0:\n  barier\n")
    [(met, got)] = held(file, evidence)
    assert (met, got.startswith("(ring.2x1.calls.txt:2: found 'barier'")) == (False, True)
    assert held(file, evidence, update=True) == [(True, golden(1))]


def test_a_link_is_neither_read_nor_written_through(tmp_path: Path, file: SnapshotFile) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("rank 0:\n  barrier\n")
    file.path.symlink_to(outside / "precious")
    evidence = run(tmp_path / "a", {0: STEP})
    assert held(file, evidence) == [(False, golden(1))]
    file.write({0: STEP})
    assert not file.path.is_symlink()
    assert (outside / "precious").read_text() == "rank 0:\n  barrier\n"


def test_a_pipe_or_a_folder_in_its_place_is_told_and_not_waited_for(tmp_path: Path, file: SnapshotFile) -> None:
    evidence = run(tmp_path / "a", {0: STEP})
    os.mkfifo(file.path)
    assert held(file, evidence) == [(False, golden(1))]
    file.path.unlink()
    file.path.mkdir()
    [(met, got)] = held(file, evidence)
    assert (met, got) == (False, golden(1))
    with pytest.raises(LabError, match="cannot write"):
        file.write({0: STEP})


def test_a_folder_that_is_gone_is_told_in_one_sentence(tmp_path: Path) -> None:
    file = locate_snapshot(tmp_path / "gone" / "ring.yaml", 1, 1)
    [(met, got)] = held(file, run(tmp_path / "a", {0: STEP}), update=True)
    assert (met, got) == (False, golden(1, file.path))


def test_text_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    file = locate_snapshot(tmp_path / "ring.yaml", 1, 1)
    with pytest.raises(LabError, match=golden(1)):
        file.write({0: ("barrier in a\nrank 1:\n",)})
    assert not file.path.exists()


def test_without_a_trace_nothing_can_be_compared(tmp_path: Path, file: SnapshotFile) -> None:
    made = TraceMaker(tmp_path / "a", 1)
    made.lines[0].clear()
    [(met, got)] = held(file, Evidence(facts=RunFacts(ranks=[RankFacts(rank=0)]), record=made.record(stop=False)))
    assert not met
    assert "tracing was off" in got


def test_nothing_is_written_among_the_lessons_of_an_installed_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "lab"
    (package / "scenarios").mkdir(parents=True)
    monkeypatch.setattr("lab.feature.__file__", str(package / "carried.py"))
    file = locate_snapshot(package / "scenarios" / "scatter.yaml", 1, 1)
    [(met, got)] = held(file, run(tmp_path / "a", {0: STEP}), update=True)
    assert not met
    assert golden(1) in got


def test_for_strangers_scripts_the_snapshot_becomes_what_is_stated(tmp_path: Path) -> None:
    (tmp_path / "ring.py").write_text("")
    source = tmp_path / "ring.yaml"
    scenario = Scenario(
        name="ring", script=tmp_path / "ring.py", source=source, expect=Expect(extra={"calls": "snapshot"})
    )
    with pytest.raises(UsageError, match=golden(1)):
        with_stated_calls(scenario, 2, 1)
    locate_snapshot(source, 2, 1).write({0: ("barrier", "barrier"), 1: ()})
    assert with_stated_calls(scenario, 2, 1).expect.extra["calls"] == {0: ("barrier", "barrier"), 1: ()}
    stated = Scenario(name="ring", script=tmp_path / "ring.py", expect=Expect(extra={"calls": ("barrier",)}))
    assert with_stated_calls(stated, 2, 1) is stated


def test_the_sentence_of_an_expectation_names_the_file_and_what_differs() -> None:
    one = Expectation(what="snapshot", rank=1, expected="ring.2x1.calls.txt", got="rank 1 makes one more barrier")
    assert one.sentence() == golden(1)
