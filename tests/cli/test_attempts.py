"""Verbs that show attempts of a run, as somebody types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.cli.main import main
from lab.record.layout import LOGS, launcher_log
from lab.record.read import Record
from tests.golden import golden
from tests.launched import Launched, restarted

pytestmark = pytest.mark.features

Words = pytest.CaptureFixture[str]


@pytest.fixture
def runs(tmp_path: Path) -> str:
    """A folder of runs with one whose second attempt ended well."""
    run = Launched(tmp_path)
    restarted(run)
    return str(run.writer.path.parent)


def test_a_verb_without_an_attempt_shows_the_last_and_tells_of_the_others(runs: str, capsys: Words) -> None:
    assert main(["show", "--runs", runs]) == 0
    shown = capsys.readouterr().out
    assert "after 1 restart" in shown
    assert golden(1) in shown
    assert main(["logs", "--runs", runs]) == 0
    printed = capsys.readouterr()
    assert printed.out == "node1/rank1 | second\n"
    assert printed.err == golden(2)


def test_an_attempt_is_shown_explained_printed_and_reported_by_its_number(runs: str, capsys: Words) -> None:
    for verb in ("show", "explain"):
        assert main([verb, "--attempt", "0", "--runs", runs]) == 0
        assert golden(1) in capsys.readouterr().out
    assert main(["logs", "--attempt", "0", "--rank", "1", "--runs", runs]) == 0
    assert capsys.readouterr().out == "first\n"
    assert main(["logs", "--attempt", "0", "--json", "--runs", runs]) == 0
    line = json.loads(capsys.readouterr().out)
    assert (line["attempt"], line["rank"], line["text"]) == (0, 1, "first\n")
    assert main(["report", "--attempt", "0", "--runs", runs]) == 0
    assert "attempts/0/report.html" in capsys.readouterr().out
    name = f"{next(Path(runs).iterdir()).name}/attempts/0"
    assert main(["show", name, "--json", "--runs", runs]) == 0
    assert json.loads(capsys.readouterr().out)["run"] == name


def test_what_the_launcher_printed_is_shown_by_itself_node_by_node(runs: str, capsys: Words) -> None:
    assert main(["logs", "--launcher", "--runs", runs]) == 0
    assert "no launcher of" in capsys.readouterr().err
    (run,) = Path(runs).iterdir()
    (run / LOGS / launcher_log("node1")).write_bytes(b"failed (exitcode: 1)\n\x1b[2Jdone")
    for of_attempt in ([], ["--attempt", "0"]):
        assert main(["logs", "--launcher", *of_attempt, "--runs", runs]) == 0
        first, second = capsys.readouterr().out.splitlines()
        assert first == "node1 | failed (exitcode: 1)"
        assert second.startswith("node1 | ")
        assert "\x1b" not in second
    assert main(["logs", "--launcher", "--json", "--node", "node1", "--runs", runs]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0]) == {"node": "node1", "text": "failed (exitcode: 1)"}


@pytest.mark.parametrize("verb", ["show", "explain", "logs", "trace", "report"])
def test_an_attempt_that_there_was_not_is_refused_with_those_that_there_were(
    runs: str, capsys: Words, verb: str
) -> None:
    assert main([verb, "--attempt", "7", "--runs", runs]) == 2
    assert golden(1) in capsys.readouterr().err


def test_a_report_of_several_runs_is_of_no_attempt(runs: str, capsys: Words) -> None:
    assert main(["report", "--suite", "--attempt", "0", "--runs", runs]) == 2
    assert golden(1) in capsys.readouterr().err


def test_results_of_attempts_are_in_the_json_of_the_run(runs: str, capsys: Words) -> None:
    assert main(["show", "--json", "--runs", runs]) == 0
    found = json.loads(capsys.readouterr().out)["attempts"]
    assert [(one["number"], one["verdict"], one["nodes"]) for one in found] == [
        (0, "failed", ["node0", "node1", "node2"]),
        (1, "passed", ["node0", "node1", "node2"]),
    ]
    assert found[0]["culprit"]["rank"] == 1
    assert Record(path=Path(found[0]["path"])).complete


def test_an_attempt_is_shown_by_its_folder_too(runs: str, capsys: Words, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = next(Path(runs).iterdir())
    monkeypatch.chdir(folder)
    assert main(["show", "attempts/0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"] == f"{folder.name}/attempts/0"
    assert main(["explain", "attempts/0"]) == 0
    assert f"run {folder.name}/attempts/0" in capsys.readouterr().out
