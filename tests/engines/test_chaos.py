"""`lab run --chaos` on real clusters: bugs that were planted are found and shrunk, and nothing stays behind."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab import Cluster
from lab.cli.main import main
from lab.engine.select import open_engine
from lab.spec.load import load_scenario

PLANTED = Path(__file__).parent / "planted"
Search = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def search(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Search:
    """Searches with a copy of a planted scenario; its exit code and what it told."""
    shutil.copytree(PLANTED, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    name = f"t-{uuid.uuid4().hex[:12]}"

    def search(scenario: str, *words: str) -> tuple[int, dict[str, Any]]:
        code = main(["run", scenario, "--chaos", "--json", "--engine", engine, "--name", name, *words])
        told = json.loads(capsys.readouterr().out)
        assert not [info.name for info in open_engine(engine).find() if info.name.startswith(name)]
        return code, told

    return search


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("scenario", "kinds", "how"),
    [
        ("in_place.yaml", "kill", "the next run, without faults, failed"),
        ("no_barrier.yaml", "hang", "it failed although its faults only delay ranks"),
        ("lonely_retry.yaml", "raise,kill", ""),
    ],
)
def test_a_planted_bug_is_found_and_shrunk_to_at_most_two_faults(
    search: Search, scenario: str, kinds: str, how: str, engine: str
) -> None:
    code, told = search(scenario, "--seed", "7", "--schedules", "60", "--faults", kinds)
    assert (code, bool(told.get("found"))) == (1, True), told
    assert 1 <= len(told["found"]) <= 2
    assert told["proofs"] == 3
    assert told["broken"].startswith(how)
    written = load_scenario(Path(told["file"]))
    with Cluster(2, name=f"t-{uuid.uuid4().hex[:12]}", engine=engine) as cluster:
        assert not cluster.run(written).passed


@pytest.mark.parametrize("engine", ["local"], indirect=True)
def test_a_scenario_that_survives_every_schedule_is_not_accused(search: Search) -> None:
    code, told = search("whole.yaml", "--faults", "kill", "--schedules", "3")
    assert (code, told["found"], told["file"]) == (0, [], None)
    assert sum(told["ends"].values()) == 3
    assert set(told["ends"]) <= {"passed", "failed"}
