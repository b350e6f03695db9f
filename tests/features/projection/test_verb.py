"""`lab project`: text, JSON, and SVG, and a sentence for what cannot be projected."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from lab.cli.main import main
from tests.features.projection.runs import data_parallel
from tests.golden import golden
from tests.traces import TraceMaker


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with runs of 2 and 4 ranks, and one without training."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".lab" / "runs"
    plain = TraceMaker(folder / "plain", 2)
    for rank in range(2):
        plain.call(rank, "all_reduce", 1, 2, [[1.0]])
    plain.record()
    data_parallel(folder / "two", 2).record()
    data_parallel(folder / "four", 4).record()
    return tmp_path


def test_step_times_are_told_with_what_they_rest_on(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["project", "two", "four", "--ranks", "8,512", "--network", "lan-100g,racks=8"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(golden(1))
    assert golden(2) in said
    assert golden(3) in said


def test_a_projection_as_data_and_as_a_picture(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["project", "four", "--ranks", "4,8", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [row["ranks"] for row in data["rows"]] == [4, 8]
    assert data["rows"][0]["measured_s"] == pytest.approx(0.05, rel=1e-3)
    assert data["network"] == "measured"
    assert main(["project", "four", "--svg", "steps.svg"]) == 0
    assert capsys.readouterr().out == "wrote steps.svg\n"
    assert ET.parse(runs / "steps.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["plain"], "cannot project run plain: it has no training steps"),
        (["four", "--ranks", "1"], "found '1'; allowed: numbers of ranks, 2 or more"),
        (["four", "--ranks", "8,many"], "found '8,many'; allowed"),
        (["four", "--network", "lan"], "--network: found 'lan'; allowed: measured, or a profile"),
        (["four", "--library", "nccl"], "--library needs --network"),
        (["four", "--network", "lan-1g", "--others", "2"], "--others needs the measured network"),
        (["four", "--others", "many"], "found 'many'; allowed: a number of programs"),
        (["nothing"], "there is no run 'nothing'"),
        (["four", "--svg", "no/such/x.svg"], "cannot write no/such/x.svg: No such file or directory"),
    ],
)
def test_what_cannot_be_projected_is_said_in_a_sentence(
    runs: Path, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["project", *words])
    except SystemExit as end:
        code = int(end.code or 0)
    error = capsys.readouterr().err
    assert code in (1, 2)
    assert sentence in error
    assert "Traceback" not in error
