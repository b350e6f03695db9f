"""`lab trace` at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.cli.main import main
from tests.golden import golden
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the runs `old-bare`, which has no trace, and `new-reduce`, which has one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    TraceMaker(tmp_path / ".lab" / "runs" / "old-bare", 2)
    made = TraceMaker(tmp_path / ".lab" / "runs" / "new-reduce", 2)
    for rank in range(2):
        made.call(rank, "all_reduce", 1, 3, [[0.0] * 500], [[0.0] * 500])
    made.record()
    return tmp_path


def test_the_tables_show_operations_and_the_matrix(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "new-reduce"]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    # 2000 bytes in 2 ms: 1 MB/s, and of two ranks the bus bandwidth is the same.
    assert ["all_reduce", "1", "2", "kB", "2", "ms", "2", "ms", "0", "s", "1", "MB/s", "1", "MB/s"] in shown
    assert ["0", "0", "B", "2", "kB", "2", "kB"] in shown
    assert ["1", "2", "kB", "0", "B", "2", "kB"] in shown


def test_what_never_finished_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = TraceMaker(here / ".lab" / "runs" / "hung", 2)
    made.call(0, "barrier", 1, None)
    made.record(stop=False)
    assert main(["trace", "hung"]) == 0
    said = capsys.readouterr().out
    assert golden(1) in said
    assert "barrier    1, finished 0  0 B    –       –" in said
    assert golden(2) in said


def test_json_goes_to_standard_output(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "new-reduce", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["traffic"] == {"logical_bytes": [[0, 2000], [2000, 0]]}
    assert data["operations"][0]["algbw"] == pytest.approx(1e6)


def test_files_are_written_and_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "new-reduce", "--chrome", "a.json", "--flight-recorder", "b"]) == 0
    said = capsys.readouterr().out
    assert f"wrote a.json ({(here / 'a.json').stat().st_size:,} bytes)" in said
    assert "wrote 2 files into b (" in said
    assert json.loads((here / "a.json").read_text())["otherData"]["run"] == "new-reduce"


def test_without_a_name_a_file_goes_into_the_record(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "new-reduce", "--chrome"]) == 0
    file = here / ".lab" / "runs" / "new-reduce" / "trace.chrome.json"
    assert json.loads(file.read_text())["otherData"]["run"] == "new-reduce"
    assert "trace.chrome.json" in capsys.readouterr().out


def test_dumps_fill_a_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "new-reduce", "--flight-recorder"]) == 0
    assert main(["trace", "new-reduce", "--flight-recorder", "made/here"]) == 0
    for made in (here / ".lab" / "runs" / "new-reduce" / "flight-recorder", here / "made" / "here"):
        assert {path.name for path in made.iterdir()} == {"rank_0", "rank_1"}
    assert "wrote 2 files into made/here (" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["old-bare"], 1, "run old-bare has no trace"),
        (["new-reduce", "--chrome", "no/such/folder/x"], 1, "cannot write no/such/folder/x: No such file"),
        (["--chrome", "new-reduce"], 2, "new-reduce is a run, but --chrome takes a file"),
        (["--flight-recorder", "new-reduce"], 2, "new-reduce is a run, but --flight-recorder takes a folder"),
        (["new-reduce", "--chrome", "x", "--flight-recorder", "x"], 1, "cannot write x: File exists"),
        (["new-redoce"], 2, "did you mean new-reduce?"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, sentence: str
) -> None:
    assert main(["trace", *words]) == code
    said = capsys.readouterr().err
    assert sentence in said
    assert "Traceback" not in said
