"""The backend of a run: what a script's process groups get, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lab import Cluster, Result
from lab.diagnosis.explain import explain_run
from lab.record.read import Record
from tests.engines.conftest import scenario_of
from tests.golden import golden

Run = Callable[..., Result]

pytestmark = pytest.mark.local_first


def told(result: Result) -> list[str]:
    """What its explanation says of backends."""
    assert result.path is not None
    return [finding.sentence for finding in explain_run(Record(path=result.path)).findings if finding.kind == "backend"]


def test_a_script_that_names_no_backend_gets_that_of_its_scenario(cluster: Cluster, tmp_path: Path):
    scenario = replace(scenario_of("named_backend.py"), backend="gloo")
    result = cluster.run(scenario, nodes=2, runs=tmp_path)
    assert result.passed, result.reason
    assert [rank.notes["backends"] for rank in result.ranks] == [["gloo", "gloo"]] * 2
    assert told(result) == []


def test_a_backend_that_is_asked_for_comes_instead_of_what_the_script_names(run: Run):
    result = run("named_backend.py", "nccl", nodes=2, backend="gloo")
    assert result.passed, result.reason
    assert [rank.notes["backends"] for rank in result.ranks] == [["gloo", "gloo"]] * 2
    assert told(result) == [golden(1)]


def test_a_backend_that_the_script_names_stays_and_is_told(cluster: Cluster, tmp_path: Path):
    scenario = replace(scenario_of("named_backend.py"), backend="nccl", args=("gloo",))
    result = cluster.run(scenario, nodes=2, runs=tmp_path)
    assert result.passed, result.reason
    assert [rank.notes["backends"] for rank in result.ranks] == [["gloo", "gloo"]] * 2
    assert told(result) == [golden(1)]
