"""A package of somebody else adds an engine, a verb, a key and a finding; nothing in the lab knows of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

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
TYPES = """\
import contextlib, io, json, sys
from lab.cli.main import main
ended = []
for line in sys.argv[1:]:
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            code = main(line.split())
        except SystemExit as end:
            code = end.code or 0
    ended.append((code, output.getvalue(), errors.getvalue()))
    if code:
        break
print(json.dumps(ended))
"""


class Ended(NamedTuple):
    """What a command came to."""

    code: int
    output: str
    errors: str


Typed = Callable[..., list[Ended]]

pytestmark = [pytest.mark.local, pytest.mark.half]


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
def typed(tmp_path: Path) -> Iterator[Typed]:
    """Runs commands of the lab in turn, in one process with these folders on the path; stops after one that fails."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "nice.yaml").write_text(SCENARIO)
    (tmp_path / "work" / "nice.py").write_text(SCRIPT)
    home = tempfile.mkdtemp(prefix="lab-third-")  # paths of sockets have to be short
    homes = {"XDG_STATE_HOME": str(tmp_path / "state"), "LAB_LOCAL_HOME": f"{home}/c"}

    def typed(*lines: str, path: Path | None = None) -> list[Ended]:
        folders = filter(None, (path, os.environ.get("PYTHONPATH"), ROOT))
        environment = {**os.environ, **homes, "PYTHONPATH": os.pathsep.join(map(str, folders))}
        command = [sys.executable, "-c", TYPES, *lines]
        done = subprocess.run(
            command, cwd=tmp_path / "work", env=environment, timeout=150, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [Ended(*one) for one in json.loads(done.stdout)]

    yield typed
    shutil.rmtree(home)


@pytest.mark.usefixtures("torch_stub")
def test_an_installed_package_adds_an_engine_a_verb_a_key_and_a_finding(typed: Typed, site: Path) -> None:
    def clusters(ended: Ended) -> list[str]:
        return [info["state"] for info in json.loads(ended.output) if info["engine"] == "idle"]

    lines = (
        "--help",
        "up --help",
        "validate nice.yaml",
        "up --nodes 2 --engine idle",
        "status --json",  # it is asked where it has a cluster
        "niceness nice.yaml",
        "run nice.yaml",
        "show",
        "explain --json",
        "explain",
        "stop node1",
        "start",
    )
    try:
        ended = typed(*lines, path=site)
    finally:
        removed, status = typed("down", "status --json", path=site)
    assert [one.code for one in ended] == [0] * len(lines), ended[-1]
    by_line = dict(zip(lines, ended, strict=True))
    assert "\n  More       niceness " in by_line["--help"].output
    assert "local,slurm,kubernetes,idle}" in by_line["up --help"].output.replace("\n", "").replace(" ", "")
    assert all(
        by_line[line].output for line in ("validate nice.yaml", "up --nodes 2 --engine idle", "stop node1", "start")
    )
    assert clusters(by_line["status --json"]) == ["ready"]
    assert by_line["niceness nice.yaml"].output == "niceness 7: node0, node1\n"
    assert "passed" in by_line["run nice.yaml"].output
    assert "idle" in by_line["show"].output
    findings = {one["kind"]: one for one in json.loads(by_line["explain --json"].output)["findings"]}
    assert findings["polite"]["facts"] == {"nodes": 2, "least": 1}
    assert findings["polite"]["sentence"] in " ".join(by_line["explain"].output.split())
    assert "2 nodes" in removed.output, removed.errors
    assert clusters(status) == []


def test_without_the_package_each_of_them_is_refused_in_a_sentence(typed: Typed) -> None:
    for line, why in (
        ("niceness nice.yaml", "there is no verb 'niceness'"),
        ("up --engine idle", "invalid choice: 'idle'"),
        ("validate nice.yaml", "unknown key 'niceness'"),
    ):
        (ended,) = typed(line)
        assert (ended.code, why in ended.output + ended.errors) == (2, True), ended
