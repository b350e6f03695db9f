"""`expect: calls: snapshot` on real runs: the same file for each engine and recorder, and what differs in words."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from lab import Cluster, Result
from lab.record.result import Expectation
from lab.spec.load import load_scenario
from tests.engines.conftest import SCRIPTS, each_recorder
from tests.golden import golden

pytestmark = pytest.mark.trains
SNAPSHOTS = SCRIPTS / "snapshots"
NAME = "steps.3x1.calls.txt"


def ran(cluster: Cluster, folder: Path, *args: object, env: dict[str, str] | None = None, **options: object) -> Result:
    scenario = load_scenario(SNAPSHOTS / "steps.yaml")
    scenario = replace(scenario, args=tuple(map(str, args)), env=env or {})
    return cluster.run(scenario, runs=folder / "runs", **options)


def told(result: Result) -> list[Expectation]:
    return [one for one in result.expectations if one.what == "snapshot"]


@pytest.mark.local_first
@each_recorder
def test_threads_that_overtake_each_other_change_nothing(cluster: Cluster, recorder: str, tmp_path: Path) -> None:
    scenario = replace(load_scenario(SNAPSHOTS / "threads.yaml"), env={"LAB_RECORDER": recorder})
    for _ in range(3):
        result = cluster.run(scenario, runs=tmp_path / "runs", update=False)
        assert result.passed, [one.got for one in result.unmet]


@each_recorder
def test_a_program_calls_what_its_snapshot_has_on_each_engine_with_each_recorder(
    cluster: Cluster, recorder: str, tmp_path: Path
) -> None:
    result = ran(cluster, tmp_path, env={"LAB_RECORDER": recorder}, update=False)
    assert result.passed, [one.got for one in result.unmet]
    [one] = told(result)
    assert (one.expected, one.got, one.met) == (NAME, golden(1), True)


@pytest.mark.local_first
def test_a_larger_layer_is_told_as_buckets_and_shapes_once_for_all_ranks(cluster: Cluster, tmp_path: Path) -> None:
    result = ran(cluster, tmp_path, 32, update=False)
    assert (result.verdict, result.exit_code) == ("failed", 1)
    assert result.reason.startswith(golden(1, NAME))
    assert any(str(one.got).startswith(golden(2)) for one in told(result))
    assert all("steps.py:" in str(one.got) for one in told(result))


@pytest.mark.local_first
@pytest.mark.long
def test_a_run_that_hangs_over_another_order_is_told_where_it_left_the_snapshot(
    cluster: Cluster, tmp_path: Path
) -> None:
    result = ran(cluster, tmp_path, 16, "other", update=False, timeout_s=5.0)
    if not told(result)[0].rank:  # rank 2 had not come so far
        result = ran(cluster, tmp_path, 16, "other", update=False, timeout_s=60.0)
    assert not result.passed
    [one] = [one for one in told(result) if one.rank == 2]
    assert one.got == (golden(1))


@pytest.mark.local_first
@pytest.mark.long
def test_the_first_run_writes_beside_the_scenario_and_later_ones_compare_warm_and_cold(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    shutil.copytree(SNAPSHOTS, tmp_path / "mine", ignore=shutil.ignore_patterns("*.calls.txt"))
    scenario = load_scenario(tmp_path / "mine" / "steps.yaml")
    got = [cluster.run(scenario, runs=tmp_path / "runs", cold=cold).expectations[-1].got for cold in (False, True)]
    assert got == [golden(1), golden(2)]
    assert (tmp_path / "mine" / NAME).read_text() == (SNAPSHOTS / NAME).read_text()
