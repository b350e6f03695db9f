"""Suites on real clusters, which are made by their workers and gone when they are over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.engine.select import open_engine
from lab.features.suite.cases import Matrix, SuiteRequest
from lab.features.suite.run import execute_suite
from lab.run.options import RunOptions
from lab.spec.load import open_scenario
from tests.golden import golden

SCRIPT = """
import os
print("seed", os.environ["LAB_SEED"], flush=True)
if os.environ["WORLD_SIZE"] == "2" and os.environ["RANK"] == "1":
    raise ValueError("two are too many")
"""


@pytest.mark.usefixtures("torch_stub")
@pytest.mark.local_first
def test_cases_run_side_by_side_on_clusters_that_are_gone_at_the_end(engine: str, tmp_path: Path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "train.py").write_text(SCRIPT)
    (tmp_path / "s" / "train.yaml").write_text("script: train.py\n")
    (tmp_path / "s" / "small.yaml").write_text("script: train.py\nnodes: 1\nresources: {memory: 1GiB}\n")
    before = {info.name for info in open_engine(engine).find()}
    found = execute_suite(
        SuiteRequest(
            scenarios=[open_scenario(tmp_path / "s" / name) for name in ("train.yaml", "small.yaml")],
            matrix=Matrix(nodes=(1, 2)),
            engine=engine,  # type: ignore[arg-type]
            name=f"t-{os.urandom(4).hex()}",
            options=RunOptions(runs=tmp_path / "runs"),
            jobs=2,
            seed=41,
        )
    )
    assert {one.case.id: one.status for one in found.outcomes} == {
        "train[nodes=1]": "passed",
        "train[nodes=2]": "failed",
        "small[nodes=1]": "passed",
        "small[nodes=2]": "failed",
    }
    assert found.clusters == 2
    assert golden(1) in found.outcomes[1].reason
    results = [one.attempts[0].result for one in found.outcomes]
    assert len({result.cluster for result in results}) == 2
    assert {result.ranks[0].log for result in results} == {"seed 41\n"}
    clusters = {result.cluster for result in results}
    after = {info.name for info in open_engine(engine).find()}
    assert not clusters & (before | after)
