"""The scenario library: every lesson at its own size on every engine, and at other sizes where that makes sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import Cluster
from lab.spec.find import find_scenarios

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "scenarios"
FILES = {str(path.relative_to(FOLDER)): path for path in find_scenarios([FOLDER])}
SIZES = ((1, 1), (2, 1), (3, 1), (5, 1), (2, 2))
ONE_SIZE_ONLY: dict[str, str] = {
    "broken/": "the culprit has a number, and alone nobody waits",
    "collectives/tutorial_": "the tutorial's three containers, and what each of them prints",
}
"""Scenarios, or folders of them, that mean nothing at another size, and why."""


def resizable(name: str) -> bool:
    """Whether a scenario is a lesson at any size."""
    return not any(name.startswith(fixed) for fixed in ONE_SIZE_ONLY)


@pytest.mark.parametrize("name", FILES)
def test_a_lesson_shows_what_it_promises(name: str, cluster: Cluster, tmp_path: Path) -> None:
    result = cluster.run(FILES[name], runs=tmp_path / "runs")
    assert result.passed, result.reason


@pytest.mark.parametrize("name", [name for name in FILES if resizable(name)])
def test_a_lesson_holds_at_other_sizes(name: str, engine: str, cluster: Cluster, tmp_path: Path) -> None:
    if engine == "docker" and not name.startswith(("scatter", "collectives/all_reduce")):
        return  # the arithmetic of a size is the same on every engine
    for nodes, nproc_per_node in SIZES:
        result = cluster.run(FILES[name], nodes=nodes, nproc_per_node=nproc_per_node, runs=tmp_path / "runs")
        assert result.passed, f"{nodes} x {nproc_per_node}: {result.reason}"
