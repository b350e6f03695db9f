"""Which files are tests, and what is said of markers and files that are wrong, before anything runs."""

from __future__ import annotations

import subprocess
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.errors import LabError
from lab.features.pytest.items import ScenarioItem
from lab.spec.load import is_scenario_file
from tests.golden import golden
from tests.pytest_process import pytest_environment, pytest_words

pytestmark = pytest.mark.half


def collected(folder: Path, *words: str) -> str:
    """What `pytest --collect-only` says there."""
    argv = pytest_words("--collect-only", "-q", *words)
    ended = subprocess.run(argv, cwd=folder, env=pytest_environment(), capture_output=True, text=True, timeout=100)
    assert "Traceback" not in ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "scenarios").mkdir()
    files = {
        "train.py": "print()",
        "good.yaml": "name: fine\nnodes: 2\nscript: train.py\n",
        "workflow.yml": "on: push\njobs:\n  one:\n    script: train.py\n",
        "values.yaml": "a: b\n",
        "data.yaml": "script: [1, 2]\n",
    }
    for name, text in files.items():
        (tmp_path / "scenarios" / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("script: train.py\n", True),
        ("nodes: 3\nscript: 'train.py'  # this one\n", True),
        ('"script": "train.py"\n', True),
        ("script: other\n", True),
        ("script: trian.py\n", True),  # misspelt: said, not passed over
        ("scirpt: train.py\nexpect: {exit: 0}\n", True),
        ("script: make all\n", False),
        ("job:\n  script: train.py\n", False),
        ("script:\n  - make\n", False),
        ("# script: train.py\n", False),
        ("", False),
        ("---\n# one\nnodes: 2\r\nscript: gone.py\r\ntimeuot: 3s\n", True),
        ("nodes: 2\nexpect:\n  exit: {0: 1}\n", True),  # it lacks a script, and is told so
        ("name: one\nnodes: [2\n", True),  # so does this one, which is no YAML either
        ("nodes: 2\n", False),
        ("stage: build\nscript: train.py\n", True),
        ("stage: build\nscript: gone.py\n", False),
        ("language: python\nscript: pytest tests/run_all.py\n", False),
        ("script: python gone.py\n", False),
        ("kind: one\n---\nscript: train.py\n", False),
        ("name: adds\ninput: 3\nexpect: 9\n", False),
        ("name: adds\nexpect: {status: 200}\n", False),
        ("nodes: 3\nrequest: GET /\nexpect: {status: 200}\n", False),
    ],
)
def test_a_file_that_names_a_script_at_its_top_level_looks_like_a_scenario(tmp_path: Path, text: str, is_one: bool):
    for name in ("train.py", "other", "one.yaml"):
        (tmp_path / name).write_text(text)
    assert is_scenario_file(tmp_path / "one.yaml") is is_one


def test_scenarios_in_a_folder_are_tests_and_other_files_are_not(project: Path):
    assert [line for line in collected(project).splitlines() if "::" in line] == ["scenarios/good.yaml::fine"]
    assert "fine" in collected(project, "-m", "lab", "-k", "fine and scenarios")
    assert "fine" not in collected(project, "-o", "lab_files=")
    assert "fine" not in collected(project, "-o", "lab_files=other/*.yaml")


def test_what_is_wrong_is_said_in_a_sentence_and_the_rest_is_still_collected(project: Path):
    (project / "scenarios" / "bad.yaml").write_text("script: trian.py\n")
    said = collected(project)
    assert "scenarios/good.yaml::fine" in said
    assert golden(1) in said
    assert "1 error" in said
    named = collected(project, "scenarios/values.yaml")
    assert "scenarios/values.yaml:1:1: script: missing" in named


def test_markers_of_others_and_copies_in_records_are_left_alone(project: Path):
    (project / "test_hw.py").write_text("import pytest\n\n@pytest.mark.lab('bench1')\ndef test_hw(): pass\n")
    (project / ".lab" / "runs").mkdir(parents=True)
    (project / ".lab" / "runs" / "test_copy.py").write_text("def test_copy(): pass\n")
    said = collected(project, "-o", "norecursedirs=build")
    assert "test_hw.py::test_hw" in said
    assert "test_copy" not in said
    assert "error" not in said


def test_a_marker_with_another_keyword_fails_its_test_with_a_sentence(project: Path):
    (project / "test_it.py").write_text("import pytest\n\n@pytest.mark.lab(node=3)\ndef test_it(cluster): pass\n")
    argv = pytest_words("test_it.py")
    said = subprocess.run(argv, cwd=project, env=pytest_environment(), capture_output=True, text=True, timeout=100)
    assert golden(1) in said.stdout
    assert "1 error" in said.stdout


def test_a_folder_of_something_else_is_not_taken_for_that_of_the_report(project: Path):
    argv = pytest_words("--lab-report", "scenarios")
    ended = subprocess.run(argv, cwd=project, env=pytest_environment(), capture_output=True, text=True, timeout=100)
    assert "--lab-report" in ended.stderr
    assert golden(1) in ended.stderr
    assert ended.returncode == 4


def test_why_a_scenario_fails_is_told_without_what_led_to_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def refuse(*_: object, **__: object) -> None:
        try:
            raise OSError("cause")
        except OSError as error:
            raise LabError("told") from error

    monkeypatch.setattr(import_module("lab.features.pytest.items"), "run_warm", refuse)
    item: Any = object.__new__(ScenarioItem)
    item.session, item.scenario = SimpleNamespace(items=[]), None
    with pytest.raises(pytest.fail.Exception, match=r"^told$") as caught:
        item.runtest()
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
