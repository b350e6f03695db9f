"""Ports that connections of one run keep: the next run gets other nodes where there are too few."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import Cluster, Result
from tests.engines.conftest import SCRIPTS, scenario_of

HERE = Path(__file__).parent / "scripts"
GOOD = SCRIPTS / "collectives.py"
STRICT_KEEPS, KEEPS = 6000, 12_000
"""Ports of a node: more than a tenth and a quarter of the 28,232 of the kernel, with a margin for slow machines."""
KEPT = "connections, which keep their ports for a minute (TIME_WAIT)"
pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("ports"), pytest.mark.half]


class Bench:
    """A cluster, what was announced about it, and its containers at the moment."""

    def __init__(self, runs: Path, *, nodes: int, strict: bool) -> None:
        self.announced: list[str] = []
        self._runs = runs
        name = f"lab-test-{uuid.uuid4().hex[:8]}"
        about = {"nodes": nodes, "nproc_per_node": 2 // nodes, "strict": strict, "announce": self.announced.append}
        self.cluster = Cluster(name=name, engine="docker", **about)  # type: ignore[arg-type]

    def run(self, script: Path, *words: object) -> Result:
        return self.cluster.run(scenario_of(script, *words, timeout_s=60.0), runs=self._runs)

    @property
    def containers(self) -> list[str]:
        info = self.cluster.info()
        assert info is not None
        return [node.handle for node in info.nodes]


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, person: None) -> Iterator[Bench]:
    """A strict cluster of one node, which is made anew again and again."""
    bench = Bench(tmp_path_factory.mktemp("runs"), nodes=1, strict=True)
    with bench.cluster:
        yield bench


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param((STRICT_KEEPS // 2, "own"), KEPT, id="own"),
        *(pytest.param((STRICT_KEEPS // 2, way), KEPT, id=way, marks=pytest.mark.long) for way in ("store", "six")),
        pytest.param((1, "chosen", 12355), "an earlier run left behind connections that keep port 12355", id="chosen"),
    ],
)
def test_a_run_that_keeps_ports_costs_the_next_one_new_nodes_and_no_port(
    strict: Bench, words: tuple[object, ...], told: str
) -> None:
    assert strict.run(GOOD).passed  # on new nodes, if an earlier test needs them
    before = strict.containers
    left = strict.run(HERE / "ports.py", *words)
    assert left.passed, left.reason
    assert strict.containers == before
    strict.announced.clear()

    good = strict.run(GOOD)

    assert good.passed, good.reason
    assert not set(strict.containers) & set(before)
    assert told in " ".join(strict.announced), strict.announced


def test_what_gloo_keeps_costs_no_nodes(strict: Bench) -> None:
    strict.run(GOOD)  # whatever was left before
    before = strict.containers

    for _ in range(10):
        assert strict.run(GOOD).passed

    assert strict.containers == before


def test_a_port_of_ones_own_choice_costs_no_nodes_where_nobody_is_a_stranger(tmp_path: Path, person: None) -> None:
    own = Bench(tmp_path / "runs", nodes=1, strict=False)
    with own.cluster:
        before = own.containers
        assert own.run(HERE / "ports.py", 100, "own").passed
        assert own.run(HERE / "ports.py", 1, "chosen", 12355).passed
        assert own.run(GOOD).passed
        assert own.containers == before
        assert own.run(HERE / "ports.py", KEEPS // 2, "own").passed
        assert own.run(GOOD).passed
        assert not set(own.containers) & set(before)
