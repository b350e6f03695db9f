"""`lab show --steps` and `--step`: the same as text, JSON, and SVG, and a sentence for what cannot be shown."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from lab.cli.main import main
from tests.golden import golden
from tests.traces import TraceMaker

pytestmark = pytest.mark.features

RESULT = {
    "verdict": "failed", "reason": "rank 1 noted something else", "scenario": "train", "run": "r", "engine": "local",
    "cluster": "c", "culprit": None, "ranks": [], "duration_s": 1.0, "faults": [], "exit_code": 1, "path": None,
    "expectations": [{"rank": 1, "what": "note x", "expected": 1, "got": 2, "met": False}],
}  # fmt: skip


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one run: a good all_reduce, a wrong one, a barrier that one rank never entered."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    maker = TraceMaker(tmp_path / ".lab" / "runs" / "r", 2)
    for rank in range(2):
        maker.call(rank, "all_reduce", 10 + rank, 20, [[1.0]], [[2.0]], red="SUM")
        maker.call(rank, "all_reduce", 30 - rank, 40, [[1.0]], [[5.0]], red="SUM", at="train.py:11")
    maker.call(0, "barrier", 50, None)
    maker.record(result=RESULT)
    return tmp_path


def test_show_tells_how_many_steps_there_are(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == golden(1)


def test_a_short_run_is_drawn_below_its_verdict(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show"]) == 0
    shown = capsys.readouterr().out
    heads = [shown.index(f"step {number} of 3: ") for number in (1, 2, 3)]
    assert [shown.index("rank 1 noted something else"), *heads] == sorted(
        [shown.index("rank 1 noted something else"), *heads]
    )
    assert "✘5.0" in shown
    assert main(["show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scenario"] == "train"


def test_steps_are_listed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--steps"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]

    assert lines[0] == ["step", "operation", "group", "at", "bytes", "ranks", "state", "time", "last"]
    assert " ".join(lines[1]) == golden(1)
    assert " ".join(lines[2]) == golden(2)
    assert " ".join(lines[3]) == golden(3)


def test_steps_as_json(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--steps", "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]

    assert [(s["number"], s["op"], s["state"], s["last"], s["missing"]) for s in steps] == [
        (1, "all_reduce", "completed", 1, []),
        (2, "all_reduce", "completed", 0, []),
        (3, "barrier", "unfinished", None, [1]),
    ]


def test_a_step_is_drawn_with_what_the_scenario_missed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "r", "--step", "2"]) == 0
    shown = capsys.readouterr().out

    assert shown.startswith("step 2 of 3: all_reduce #2\n")
    assert "✘5.0" in shown
    assert golden(1) in shown


def test_a_step_as_json_and_as_a_file(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--step", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["check"] == "wrong"
    assert main(["show", "--step", "2", "--svg", "step.svg"]) == 0
    assert capsys.readouterr().out == "wrote step.svg\n"
    assert ET.parse(runs / "step.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--step", "9"], "run r has no step 9; allowed: 1 to 3"),
        (["--step", "0"], "found '0'; allowed: a whole number, 1 or more"),
        (["--step", "two"], "found 'two'; allowed: a whole number, 1 or more"),
        (["--svg", "x.svg"], "--svg needs --step N"),
        (["--model", "--svg", "x.svg"], "--model prints a table"),
        (["--step", "1", "--steps"], "not allowed with argument"),
        (["--step", "1", "--svg", "no/such/x.svg"], "cannot write no/such/x.svg: No such file or directory"),
    ],
)
def test_what_cannot_be_shown_is_said_in_a_sentence(
    runs: Path, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["show", *words])
    except SystemExit as end:
        code = int(end.code or 0)
    error = capsys.readouterr().err

    assert code in (1, 2)
    assert sentence in error
    assert "Traceback" not in error


@pytest.mark.parametrize("word", ["--steps", "--step=1"])
def test_a_run_without_a_trace_says_so(runs: Path, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (runs / ".lab" / "runs" / "r" / "trace").iterdir():
        path.unlink()

    assert main(["show", word]) == 1
    assert golden(1) in capsys.readouterr().err


def test_calls_are_printed_as_a_scenario_states_them(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--calls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "calls:",
        "  0:",
        golden(1),
        "    - barrier",
        "  1:",
        golden(1),
    ]


def test_calls_as_json(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--calls", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "calls": {"0": [golden(1), "barrier"], "1": [golden(1)]},
        "problems": [],
    }
