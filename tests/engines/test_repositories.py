"""Scripts in the folders of a repository: all of it is shipped, and its packages can be imported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lab import Result
from lab.cli.main import main
from lab.spec.load import load_scenario

Run = Callable[..., Result]
pytestmark = pytest.mark.usefixtures("usable", "nothing_left")

TRAIN = """\
import os, sys
import near, pkg, tools
from lab import note
note("seen", [os.getcwd() == os.path.dirname(os.path.dirname(os.path.abspath(__file__))), near.N, pkg.N, tools.N])
note("argv", sys.argv)
open("made.txt", "w").write("1")
if "--fail" in sys.argv:
    pkg.fail()
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    files = {
        "examples/train.py": TRAIN,
        "examples/near.py": "N = 1\n",
        "src/pkg/__init__.py": "N = 2\ndef fail():\n    raise ValueError('from the package')\n",
        "tools/__init__.py": "N = 3\n",
        "train.yaml": "script: examples/train.py\nfolder: .\nnodes: 2\n",
    }
    for name, text in files.items():
        (tmp_path / "repository" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "repository" / name).write_text(text)
    return tmp_path / "repository"


def test_a_script_of_a_repository_starts_at_its_root_and_imports_its_packages(run: Run, repository: Path) -> None:
    scenario = load_scenario(repository / "train.yaml")
    result = run(scenario.script, folder=scenario.folder, nodes=2)
    assert result.passed, result.reason
    for rank in result.ranks:
        assert rank.notes["seen"] == [True, 1, 2, 3]
        assert rank.notes["argv"] == ["examples/train.py"]
    assert [output.path for output in result.outputs] == ["made.txt"]
    assert (result.path / "examples" / "train.py").read_text() == TRAIN
    assert load_scenario(result.path / "scenario.yaml").script_path == "examples/train.py"


def test_the_option_names_the_root_and_an_error_its_line_below_it(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repository)
    runs = ["--runs", str(tmp_path / "runs"), "--engine", "local"]
    assert main(["run", "--folder", ".", *runs, "examples/train.py", "--", "--fail"]) == 1
    said = capsys.readouterr().out
    assert "src/pkg/__init__.py:3" in said
    assert main(["run", "--folder", "src", *runs, "examples/train.py"]) == 2
    assert "--folder src does not contain" in capsys.readouterr().err
