"""Many nodes on one machine: they are up at little cost, their ranks come to the right result, the odd one is named."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import Cluster, LabError
from lab.diagnosis.explain import explain_run
from lab.engine.local.engine import LocalEngine
from lab.features.html.page import write_report
from lab.record.read import Record
from lab.report.style import Style
from lab.report.verdict import result_text
from tests.engines.conftest import scenario_of
from tests.golden import golden

pytestmark = pytest.mark.half

MB = 1_000_000


@pytest.fixture
def many(person: None, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """So many local nodes as the test asks for."""
    with Cluster(nodes=request.param, name=f"t-{uuid.uuid4().hex[:12]}", engine="local") as cluster:
        yield cluster


def check_sum(cluster: Cluster, ranks: int, runs: Path) -> Record:
    """Have all ranks add up their numbers, and look at what is shown of it."""
    result = cluster.run(scenario_of("sum_of_ranks.py"), runs=runs, nodes=ranks, timeout_s=170)
    assert result.passed, result.reason
    assert {rank.notes["sum"] for rank in result.ranks} == {ranks * (ranks - 1) / 2}
    shown = result_text(result, Style(colour=False)).splitlines()
    assert len(shown) < 30
    assert any(line.startswith(f"0-{ranks - 1}  node0-node{ranks - 1}") for line in shown)
    assert result.path is not None
    return Record(path=result.path)


@pytest.mark.parametrize("many", [32], indirect=True)
def test_32_nodes_reduce_over_all_of_them_and_a_dead_one_is_named(many: Cluster, tmp_path: Path) -> None:
    check_sum(many, 32, tmp_path / "runs")
    info = many.info()
    assert info is not None
    assert len({node.address for node in info.nodes}) == 32
    LocalEngine().kill(info.nodes[23])
    info = many.info()
    assert info is not None
    assert [node.name for node in info.nodes if node.state != "running"] == ["node23"]


def test_more_nodes_than_there_is_room_for_are_refused_and_nothing_is_made(person: None) -> None:
    cluster = Cluster(nodes=60_000, name=f"t-{uuid.uuid4().hex[:12]}", engine="local")
    with pytest.raises(LabError, match=golden(1)):
        cluster.up()
    assert cluster.info() is None


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("many", [256], indirect=True)
def test_256_nodes_take_little_and_128_ranks_are_explained_and_reported(many: Cluster, tmp_path: Path) -> None:
    info = many.info()
    assert info is not None
    assert len({node.address for node in info.nodes}) == 256
    sizes = [size for node in info.nodes if (size := LocalEngine().memory_bytes(node)) is not None]
    assert len(sizes) == 256
    assert max(sizes) < 25 * MB
    record = check_sum(many, 128, tmp_path / "runs")
    assert explain_run(record).findings[-1].sentence.startswith("Ranks 0-127 entered")
    report = write_report(record)
    assert report.steps >= 1
    assert report.bytes < 2 * MB
