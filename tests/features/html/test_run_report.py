"""`lab run --report`: the page beside the verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.cli.main import main
from lab.engine import select
from tests.fake_engine import FakeEngine, exits, notes, prints
from tests.golden import golden


@pytest.fixture
def place(tmp_path: Path, own_homes: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a scenario, and an engine whose rank 1 fails."""
    engine = FakeEngine({0: [prints("zero\n"), notes("x", 1), exits()], 1: [prints("one\n", 2), exits(3)]})
    monkeypatch.setitem(select.OPENERS, "docker", lambda: engine)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print()\n")
    (tmp_path / "one.yaml").write_text("name: one\nlearn: a thing\nscript: train.py\nnodes: 2\n")
    return tmp_path


def test_a_run_that_failed_has_its_report_too_and_keeps_its_exit_code(place: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["run", "one.yaml", "--report", "--json"]) == 1
    told = capsys.readouterr()
    page = Path(json.loads(told.out)["path"]) / "report.html"
    assert "✘ failed – one – lab" in page.read_text()
    assert golden(1, page) in told.err


def test_of_several_runs_each_has_a_report(place: Path, capsys: pytest.CaptureFixture[str]):
    (place / "two.yaml").write_text("name: two\nlearn: a thing\nscript: train.py\nnodes: 2\n")
    main(["run", "one.yaml", "two.yaml", "--report"])
    told = capsys.readouterr().err
    assert told.count("report.html") == 2
    assert len(list(place.glob(".lab/runs/*/report.html"))) == 2
    assert golden(1) in told
    assert Path(".lab/runs/suite.html").read_text().count("/report.html") == 2


def test_runs_of_one_command_are_a_suite_and_a_run_alone_is_none(place: Path, capsys: pytest.CaptureFixture[str]):
    (place / "two.yaml").write_text("name: two\nlearn: a thing\nscript: train.py\nnodes: 2\n")
    main(["run", "one.yaml", "two.yaml"])
    main(["run", "two.yaml"])
    capsys.readouterr()
    assert main(["report", "--suite", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [run.split("-", 2)[2] for run in told["runs"]] == ["one", "two"]
    assert told["verdicts"] == {"failed": 2}
    assert main(["report", "--suite", "two-2", "--json"]) != 0
