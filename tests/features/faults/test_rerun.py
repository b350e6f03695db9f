"""A scenario that is run once more where its faults made it fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.cluster import Cluster
from lab.features.faults.fault import Fault, When
from lab.features.faults.kinds.nodes import Kill
from lab.spec.scenario import Expect, Resources, Scenario
from tests.fake_engine import FakeEngine, exits, notes
from tests.golden import golden

NEVER = Fault(what=Kill(node="node1"), when=When(note="never"))
"""Its run fails, because it never comes."""


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.py").write_text("print()\n")


def scenario(**more: object) -> Scenario:
    said = {
        "name": "s",
        "script": Path("s.py").absolute(),
        "nodes": 2,
        "extra": {"rerun": True, "faults": (NEVER,)},
        **more,
    }
    return Scenario(**said)  # type: ignore[arg-type]


def records() -> list[Path]:
    return sorted(Path(".lab/runs").iterdir())


def engine() -> FakeEngine:
    return FakeEngine({rank: [notes("sum", 3), exits()] for rank in range(2)})


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize("wish", [Resources(), Resources(cpus=1.0)])
def test_the_run_without_faults_is_the_one_that_is_told(up: bool, wish: Resources) -> None:
    said: list[str] = []
    on = engine()
    cluster = Cluster(2, name="c", engine=on, cpus=wish.cpus, announce=said.append)
    if up:
        cluster.up()
    result = cluster.run(scenario(resources=wish))
    assert (result.verdict, result.faults, len(records())) == ("passed", (), 2)
    assert golden(1) in said
    assert bool(on.clusters) == up


def test_among_several_it_is_run_once_more_too() -> None:
    cluster = Cluster(name="c", engine=engine())
    results = cluster.run_all([scenario(), scenario(name="own", resources=Resources(cpus=1.0))])
    assert [getattr(result, "verdict", result) for result in results] == ["passed", "passed"]
    assert len(records()) == 4


def test_a_run_that_does_not_pass_without_faults_either_is_failed() -> None:
    result = Cluster(2, name="c", engine=engine()).run(scenario(expect=Expect(notes={"sum": 4})))
    assert (result.verdict, result.faults) == ("failed", ())
    assert "note sum" in result.reason


def test_a_run_that_passes_under_its_faults_or_is_not_to_be_run_again_is_run_once() -> None:
    cluster = Cluster(2, name="c", engine=engine())
    assert cluster.run(scenario(extra={"rerun": True})).passed
    assert not cluster.run(scenario(extra={"faults": (NEVER,)})).passed
    assert len(records()) == 2
