"""Clusters of an earlier version of the lab are not used any more: a command replaces them and says so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.crash.conftest import ROOT, Lab
from tests.golden import golden

PROTOCOL = "PROTOCOL = "
SCRIPT = "import os\nprint('ran', os.environ['RANK'])\n"


@pytest.fixture
def old(tmp_path: Path) -> str:
    """A search path with a lab whose agents have messages of another version."""
    folder = tmp_path / "old"
    shutil.copytree(ROOT / "lab", folder / "lab")  # with what Python compiled: it is valid, times are copied too
    messages = folder / "lab" / "node" / "messages" / "agent.py"
    text = messages.read_text()
    assert text.count(f"\n{PROTOCOL}") == 1
    messages.write_text(text.replace(f"\n{PROTOCOL}", f"\n{PROTOCOL}-"))
    return str(folder)


@pytest.mark.local_first
def test_a_run_on_a_cluster_of_another_version_makes_it_again_and_says_why(lab: Lab, old: str) -> None:
    made_by = {"PYTHONPATH": lab.env["PYTHONPATH"].replace(str(ROOT), old)}
    assert lab("up", "--nodes", "2", "--env", "KEPT=yes", **made_by).code == 0
    assert lab("run", lab.script(SCRIPT), **made_by).code == 0
    assert lab.status()["state"] == "ready"

    ended = lab("run", lab.script(SCRIPT))

    assert ended.code == 0, ended.said
    assert golden(1, lab.name) in ended.err
    assert golden(2) in ended.err
    assert lab.status()["shape"]["env"] == {"KEPT": "yes"}
    assert lab("run", lab.script(SCRIPT)).err == ""
    assert lab("up", "--nodes", "1", "--name", f"{lab.name}-b", **made_by).code == 0
    assert lab("down", "--name", f"{lab.name}-b").code == 0


def test_a_cluster_of_another_version_whose_command_died_is_removed(local_lab: Lab, old: str) -> None:
    lab = local_lab
    made_by = {"PYTHONPATH": lab.env["PYTHONPATH"].replace(str(ROOT), old)}
    assert lab("up", "--nodes", "1", **made_by).code == 0
    [lock] = Path(lab.env["XDG_STATE_HOME"], "lab", "locks").glob(f"local-{lab.name}.lock")
    lock.write_text('{"pid": 1, "purpose": "a run that died"}')

    ended = lab("up", "--nodes", "1")

    assert ended.code == 0, ended.said
    assert golden(1, lab.name) in ended.err
    assert lab("run", lab.script(SCRIPT)).code == 0
