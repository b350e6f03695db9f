"""The plugin for pytest, in a session of its own on each engine."""

from __future__ import annotations

import json
import re
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.engine.select import open_engine
from tests.golden import golden
from tests.pytest_process import pytest_environment, pytest_words

pytestmark = pytest.mark.half

HELLO = """
import os
print("hello from", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
"""
BAD = """
import os
print("about to fail" if os.environ["RANK"] == "1" else "all is well", flush=True)
if os.environ["RANK"] == "1":
    raise ValueError("the loss is \\x1b[2J not a number")
"""
TESTS = """
import pytest

names = set()

@pytest.mark.parametrize("turn", [1, 2])
def test_same_cluster(cluster, turn):
    names.add(cluster.name)
    assert cluster.run("hello.py", nodes=2).passed
    assert len(names) == 1

def test_after_that(lab_run):
    result = lab_run("hello.py", nodes=1, args=["x"])
    assert result.cluster in names and result.ranks[0].log == "hello from 0 of 1\\n"

def test_not_there(lab_run):
    lab_run("hallo.py")

def test_rank_fails(lab_run):
    result = lab_run("bad.py")
    assert result.passed
"""


@dataclass(frozen=True)
class Session:
    """What a session of pytest came to."""

    code: int
    said: str
    report: Path

    def failure(self, test: str) -> str:
        """What the JUnit file says of a test that failed; empty of one that passed."""
        [case] = [case for case in ET.parse(self.report).iter("testcase") if case.get("name") == test]
        return "".join(
            (part.get("message") or "") + (part.text or "") for part in case if part.tag in ("failure", "error")
        )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with tests, scripts and scenarios."""
    (tmp_path / "scenarios").mkdir()
    files = {
        "pytest.ini": "[pytest]\n",
        "test_it.py": TESTS,
        "hello.py": HELLO,
        "bad.py": BAD,
        "scenarios/hello.py": HELLO,
        "scenarios/fine.yaml": "script: hello.py\nnodes: 3\nexpect: {logs: {2: from 2 of 3}}\n",
        "scenarios/limited.yaml": "script: hello.py\nnodes: 1\nresources: {cpus: 1}\n",
        "scenarios/wrong.yaml": "script: hello.py\nnodes: 2\nexpect: {exit: {1: 3}}\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def session(project: Path, *words: str) -> Session:
    argv = pytest_words("-ra", "--junitxml=junit.xml", *words)
    env = {**pytest_environment(), "COLUMNS": "200"}
    ended = subprocess.run(argv, cwd=project, env=env, capture_output=True, text=True, timeout=170)
    return Session(ended.returncode, ended.stdout + ended.stderr, project / "junit.xml")


@pytest.mark.usefixtures("torch_stub")
@pytest.mark.local_first
def test_a_session_with_tests_and_scenarios(engine: str, project: Path):
    ended = session(project, "--lab-engine", engine, "--lab-report=records")
    assert "3 failed, 5 passed" in ended.said, ended.said
    assert f"lab: using the {engine} engine (--lab-engine)" in ended.said

    failure = ended.failure("test_rank_fails")
    assert failure.count(golden(1)) == 1
    assert golden(2) in failure
    assert golden(3) in failure
    assert golden(4) in failure
    assert f"record: {project}/records/" in failure
    assert "\x1b" not in ended.said

    assert golden(5) in ended.failure("test_not_there")
    assert "open_scenario" not in ended.said

    assert golden(6) in ended.failure("wrong")
    assert golden(7) in ended.said

    assert golden(8, project) in ended.said
    results = [json.loads(path.read_text()) for path in project.glob("records/*/result.json")]
    assert len(results) == len(list(project.glob("records/*/report.html"))) == 7
    used = {result["cluster"] for result in results}
    assert len(used) == 2  # the one that all share, and that of the scenario with a limit of its own
    assert not used & {info.name for info in open_engine(engine).find()}


SIDE_BY_SIDE = """
import pytest

@pytest.mark.parametrize("turn", range(4))
def test_runs(lab_run, turn):
    assert lab_run("hello.py", nodes=2).passed

@pytest.mark.lab(gpus=64)
def test_many_gpus(cluster):
    pass

@pytest.mark.timeout(20)
def test_hangs(lab_run):
    result = lab_run("hang.py", nodes=1)
    assert result.verdict == "hung", result.reason
"""


@pytest.mark.long
def test_workers_side_by_side_have_clusters_of_their_own_which_the_next_session_takes_over(engine: str, project: Path):
    (project / "test_it.py").write_text(SIDE_BY_SIDE)
    (project / "hang.py").write_text("import time\ntime.sleep(600)\n")
    more = ("-p", "xdist", "-p", "pytest_timeout", "-n2", "--dist=each", "-o", "lab_files=", "--lab-engine", engine)
    first = session(project, *more, "--lab-keep")
    assert "10 passed, 2 skipped" in first.said, first.said
    assert golden(1) in first.said
    kept = set(re.findall(r"kept cluster (\S+);", first.said))
    assert len(kept) == 2
    assert kept <= {info.name for info in open_engine(engine).find()}
    second = session(project, *more)
    assert "10 passed, 2 skipped" in second.said, second.said
    assert "kept" not in second.said
    assert not kept & {info.name for info in open_engine(engine).find()}


LIBRARY = {
    "pytest.ini": "[pytest]\npythonpath = src\n",
    "src/ownlib/__init__.py": "from ownlib.check import check\n",
    "src/ownlib/check.py": "import os\ndef check():\n    assert os.environ['RANK'] != '1', 'own'\n",
    "tests/scripts/train.py": "import sys, ownlib\nownlib.check() if len(sys.argv) > 1 else print('fine')\n",
    "tests/test_it.py": """
def test_imports(lab_run):
    assert lab_run("scripts/train.py", nodes=2).ranks[0].log == "fine\\n"

def test_fails(lab_run):
    result = lab_run("scripts/train.py", nodes=2, args=["--fail"])
    assert result.passed

def test_fails_in_another_way(lab_run):
    result = lab_run("scripts/train.py", nodes=2, args=["--fail"])
    assert result.ranks[0].exit_code == 3
""",
}


@pytest.mark.usefixtures("torch_stub")
@pytest.mark.local_first
def test_scripts_of_tests_import_the_package_and_failures_are_told_once(engine: str, project: Path):
    for name, text in LIBRARY.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    ended = session(project, "--lab-engine", engine, "tests")
    assert "2 failed, 1 passed" in ended.said, ended.said
    assert re.search(golden(1), ended.said)
    for test in ("test_fails", "test_fails_in_another_way"):
        failure = ended.failure(test)
        assert f"FAILED tests/test_it.py::{test} - {golden(2)}" in ended.said
        assert failure.count(golden(3)) == 2  # in the message of the JUnit file, and in its text
        assert [failure.count(text) for text in ("Traceback", "record: ")] == [1, 1]
    assert golden(4) in ended.failure("test_fails")


@pytest.mark.sample(2)  # one rule for all ways to choose
@pytest.mark.usefixtures("torch_stub")
@pytest.mark.parametrize(
    ("words", "is_made"),
    [
        (["--collect-only"], False),
        (["-k", "plain"], False),
        (["-n1", "-p", "xdist", "-k", "plain"], False),
        ([], True),
    ],
    ids=["lists", "deselects", "xdist", "runs"],
)
def test_a_session_makes_a_cluster_only_for_tests_that_it_runs(project: Path, tmp_path: Path, words, is_made):
    (project / "test_it.py").write_text("def test_plain(): pass\ndef test_never(lab_run): pass\n")
    ended = session(project, "--lab-engine", "local", "-o", "lab_files=", *words)
    assert ended.code == 0, ended.said
    assert ("lab: cluster of 3 nodes made in" in ended.said) is is_made


@pytest.mark.usefixtures("torch_stub")
def test_an_error_while_collecting_leaves_no_cluster(project: Path):
    before = {info.name for info in open_engine("local").find()}
    (project / "test_it.py").write_text("def test_never(lab_run): pass\n")
    (project / "test_wrong.py").write_text("import gone\n")
    ended = session(project, "--lab-engine", "local", "-o", "lab_files=")
    assert "1 error during collection" in ended.said, ended.said
    assert {info.name for info in open_engine("local").find()} <= before
