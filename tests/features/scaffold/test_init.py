"""`lab init`: what it writes, and what it leaves alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from lab.cli.main import main
from lab.spec.load import load_scenario, schema_file
from tests.golden import golden

ALWAYS = {
    "scenarios/first.yaml",
    "scenarios/first.py",
    "scenarios/scenario.schema.json",
    "tests/test_distributed.py",
    ".gitignore",
}
GITHUB = ".github/workflows/lab.yml"
GITLAB = ".gitlab-ci.yml"
Init = Callable[..., dict[str, str]]


@pytest.fixture
def init(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Init:
    """Calls it in an empty folder; returns what it says of each file."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> dict[str, str]:
        assert main(["init", "--json", *words]) == 0
        return {one["path"]: one["done"] for one in json.loads(capsys.readouterr().out)}

    return call


def files() -> set[str]:
    return {str(path) for path in Path().rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("options", "workflows"),
    [
        ((), {GITHUB}),
        (("--github",), {GITHUB}),
        (("--gitlab",), {GITLAB}),
        (("--github", "--gitlab"), {GITHUB, GITLAB}),
    ],
)
def test_it_writes_a_scenario_a_test_and_a_workflow(init: Init, options: tuple[str, ...], workflows: set[str]) -> None:
    done = init(*options)
    assert set(done) == files() == ALWAYS | workflows
    assert set(done.values()) == {"wrote"}
    scenario = load_scenario(Path("scenarios/first.yaml"))
    assert (scenario.name, scenario.script.name, scenario.nodes) == ("first", "first.py", 3)
    compile(Path("tests/test_distributed.py").read_text(), "test_distributed.py", "exec")
    assert Path("scenarios/scenario.schema.json").read_bytes() == schema_file().read_bytes()
    for workflow in workflows:
        assert isinstance(yaml.safe_load(Path(workflow).read_text()), dict)


def test_what_is_there_is_kept_and_said(init: Init) -> None:
    Path("scenarios").mkdir()
    Path("scenarios/first.py").write_text("mine")
    Path(GITLAB).write_text("theirs")
    done = init()
    assert {path for path, what in done.items() if what == "kept"} == {"scenarios/first.py", GITLAB}
    assert Path("scenarios/first.py").read_text() == "mine"
    assert Path(GITLAB).read_text() == "theirs"
    assert GITHUB not in files(), "a repository that GitLab builds needs none"
    assert set(init().values()) == {"kept"}


def test_with_force_it_is_overwritten(init: Init) -> None:
    init()
    Path("scenarios/first.py").write_text("mine")
    Path(".gitignore").write_text("mine")
    done = init("--force")
    assert {path for path, what in done.items() if what == "kept"} == {".gitignore"}
    assert set(done.values()) == {"overwrote", "kept"}
    assert Path("scenarios/first.py").read_text() != "mine"


def test_a_dry_run_writes_nothing(init: Init) -> None:
    assert set(init("new/folder", "--dry-run").values()) == {"wrote"}
    assert list(Path().iterdir()) == []


def test_another_folder_may_be_named_and_is_made(init: Init) -> None:
    assert "new/folder/scenarios/first.yaml" in init("new/folder")
    assert Path("new/folder/scenarios/first.yaml").is_file()


@pytest.mark.parametrize("folder", ["file", "file/below"])
def test_what_cannot_be_written_is_a_sentence(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    assert main(["init", folder]) == 2
    assert folder in capsys.readouterr().err


def test_it_says_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["init", "theirs"]) == 0
    said = capsys.readouterr().out
    assert "wrote     theirs/scenarios/first.yaml\n" in said
    assert said.endswith(golden(1))
    Path("theirs/.gitignore").write_text("*.pyc\n")
    assert main(["init", "theirs"]) == 0
    assert golden(2) in capsys.readouterr().out
    assert main(["init", "theirs", "--dry-run"]) == 0
    assert golden(3) in capsys.readouterr().out


def test_an_exercise_has_a_solution_a_start_a_check_and_a_test_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "ring-sum", "--exercise"]) == 0
    scripts = {"ring_sum.py", "ring_sum_start.py", "ring_sum_check.py", "test_ring_sum.py"}
    assert files() == {"ring_sum.yaml", "scenario.schema.json", *scripts}
    scenario = load_scenario(Path("ring_sum.yaml"))
    assert (scenario.name, scenario.nodes, scenario.script.name, scenario.expect.check) == (
        "ring-sum",
        3,
        "ring_sum.py",
        "ring_sum_check.py:check",
    )
    assert not scenario.expect.notes, "what students get meets nothing but `exit`, which earns nothing alone"
    for script in scripts:
        text = Path(script).read_text()
        compile(text, script, "exec")
        assert "exercise." not in text
        assert "exercise_" not in text
    assert main(["new", "ring-sum", "--exercise"]) == 2, "nothing is overwritten"
    assert main(["new", "other", "--exercise", "--from", "scatter"]) == 2
