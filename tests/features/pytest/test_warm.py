"""Session on a warm cluster: recorded for the session, in time, without what other tests left."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.features.pytest.pool import Session, SessionCluster
from lab.features.pytest.stash import DEADLINE
from lab.node.messages.agent import Prepare
from lab.record.read import Record
from lab.run.options import RunOptions
from lab.spec.scenario import Scenario
from tests.fake_engine import FakeEngine, exits


class Config:
    """What is asked of the configuration of a session."""

    def __init__(self, folder: Path, report: str | None = None) -> None:
        self.invocation_params = SimpleNamespace(dir=folder)
        self.stash = pytest.Stash()
        self._report = report

    def getoption(self, name: str) -> str | None:
        return {"lab_report": self._report}.get(name)


@pytest.fixture
def folder(tmp_path: Path, own_homes: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "s.py").write_text("print()\n")
    return tmp_path


def warm(config: Config, **engine: Any) -> tuple[SessionCluster, Session, FakeEngine]:
    runs = Session(config)  # type: ignore[arg-type]
    fake = FakeEngine(**engine)
    cluster = SessionCluster(runs, nodes=2, name="c", engine=fake)
    cluster.up()
    return cluster, runs, fake


def test_runs_of_a_session_are_one_suite_in_the_folder_of_the_session(folder: Path, monkeypatch):
    cluster, runs, _ = warm(Config(folder))
    monkeypatch.chdir(folder / "s")
    results = [cluster.run("s.py"), cluster.run("s.py")]
    assert runs.of_test == results
    assert {result.path.parent for result in results} == {folder / ".lab" / "runs"}
    turns = [Record(path=result.path).plan().turn for result in results]
    assert [turn.number for turn in turns] == [1, 2]
    assert len({turn.suite for turn in turns}) == 1


def test_they_are_where_the_report_is_wanted_or_where_the_test_says(folder: Path):
    cluster, _, _ = warm(Config(folder, "records"))
    assert cluster.run(folder / "s" / "s.py").path.parent == folder / "records"
    assert cluster.run(folder / "s" / "s.py", runs=folder / "mine").path.parent == folder / "mine"


@pytest.mark.parametrize(
    ("left_s", "asked_s", "limit_s"),
    [
        (None, None, None),
        (None, 7.0, 7.0),
        (1000.0, None, None),
        (30.0, None, 24.0),
        (30.0, 10.0, 10.0),
        (4.0, None, 2.0),
    ],
)
def test_a_run_is_over_before_its_test_has_to_be(folder: Path, left_s, asked_s, limit_s):
    config = Config(folder)
    if left_s is not None:
        config.stash[DEADLINE] = time.monotonic() + left_s
    scenario = Scenario(name="s", script=folder / "s" / "s.py", timeout_s=60.0)
    found = Session(config).options(scenario, RunOptions(timeout_s=asked_s)).timeout_s  # type: ignore[arg-type]
    assert found == (limit_s if limit_s is None else pytest.approx(limit_s, abs=1.0))


def test_ctrl_c_in_a_run_interrupts_the_session(folder: Path, monkeypatch):
    cluster, runs, _ = warm(Config(folder), acts={0: [], 1: []})
    monkeypatch.setattr("lab.run.drive.Driver._wait_for_ranks", lambda driver: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        cluster.run(folder / "s" / "s.py")
    assert [result.exit_code for result in runs.of_test] == [130]


def test_what_other_tests_left_in_the_shared_folder_is_emptied_before_the_first_run_of_a_test(folder: Path):
    cluster, _, engine = warm(Config(folder), acts={0: [exits()], 1: [exits()]})
    emptied = []
    cluster.fresh = True
    for _ in range(2):
        cluster.run(folder / "s" / "s.py")
        emptied += [bool(m.emptied) for m in engine.agents["node0"].heard if isinstance(m, Prepare)]
    assert emptied == [True, False]
