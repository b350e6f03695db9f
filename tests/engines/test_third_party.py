"""A package of somebody else adds an engine, a verb, a key and a finding; nothing in the lab knows of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
THEIRS = ROOT / "tests" / "third_party" / "lab_idle"
SCENARIO = """\
script: nice.py
nodes: 2
niceness: 7
expect: {notes: {niceness: 7}}
"""
SCRIPT = "import os\nimport lab\nlab.note('niceness', os.nice(0))\n"
Typed = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.local


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Where pip has installed it."""
    source = tmp_path / "lab_idle"
    shutil.copytree(THEIRS, source, ignore=shutil.ignore_patterns("__pycache__"))
    options = ("--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--target", str(tmp_path / "site"))
    pip = [sys.executable, "-m", "pip", "install", *options, str(source)]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=120, env=os.environ)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return tmp_path / "site"


@pytest.fixture
def typed(tmp_path: Path) -> Typed:
    """Types a command of the lab, with these folders on the path."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "nice.yaml").write_text(SCENARIO)
    (tmp_path / "work" / "nice.py").write_text(SCRIPT)
    homes = {"XDG_STATE_HOME": str(tmp_path / "state"), "LAB_LOCAL_HOME": f"/tmp/lab-third-{os.getpid()}"}

    def typed(*words: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **homes, "PYTHONPATH": os.pathsep.join(map(str, filter(None, (path, ROOT))))}
        command = [sys.executable, "-m", "lab.cli.main", *words]
        return subprocess.run(
            command, cwd=tmp_path / "work", env=environment, timeout=120, capture_output=True, text=True
        )

    return typed


def test_an_installed_package_adds_an_engine_a_verb_a_key_and_a_finding(typed: Typed, site: Path) -> None:
    def fine(*words: str) -> str:
        done = typed(*words, path=site)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def clusters() -> list[str]:
        return [info["state"] for info in json.loads(fine("status", "--json")) if info["engine"] == "idle"]

    assert "\n  niceness " in fine("--help")
    assert "local,slurm,idle}" in fine("up", "--help").replace("\n", "").replace(" ", "")
    assert fine("validate", "nice.yaml")
    try:
        assert fine("up", "--nodes", "2", "--engine", "idle")
        assert clusters() == ["ready"]  # it is asked where it has a cluster
        assert fine("niceness", "nice.yaml") == "niceness 7: node0, node1\n"
        assert "passed" in fine("run", "nice.yaml")
        assert "idle" in fine("show")
        findings = {one["kind"]: one for one in json.loads(fine("explain", "--json"))["findings"]}
        assert findings["polite"]["facts"] == {"nodes": 2, "least": 1}
        assert findings["polite"]["sentence"] in " ".join(fine("explain").split())
        assert fine("stop", "node1")
        assert fine("start")
    finally:
        removed = typed("down", path=site)
    assert "2 nodes" in removed.stdout, removed.stderr
    assert clusters() == []


def test_without_the_package_each_of_them_is_refused_in_a_sentence(typed: Typed) -> None:
    for words, why in (
        (("niceness", "nice.yaml"), "there is no verb 'niceness'"),
        (("up", "--engine", "idle"), "invalid choice: 'idle'"),
        (("validate", "nice.yaml"), "unknown key 'niceness'"),
    ):
        done = typed(*words)
        assert (done.returncode, why in done.stdout + done.stderr) == (2, True), done.stdout + done.stderr
