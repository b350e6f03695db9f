"""Removing the folder of a local cluster, where no process of it is left."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from lab.engine import agent_holder
from lab.engine.agent_holder import DESCRIPTION
from lab.engine.local.engine import CLUSTER_VARIABLE, LocalEngine
from lab.engine.ownership import state_folder
from lab.errors import ClusterError
from lab.node.recorder.build import cache_folder
from lab.plan.cluster import Shape


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a cluster of two nodes, with what a script left in it."""
    folder = tmp_path / "home" / "c"
    (folder / "node0" / "run").mkdir(parents=True)
    (folder / "node0" / "run" / "file").write_text("x")
    description = {"shape": Shape(nodes=2).to_json(), "network": "7.8"}
    (folder / DESCRIPTION).write_text(json.dumps(description))
    return folder


@pytest.fixture
def engine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> LocalEngine:
    monkeypatch.setenv("LAB_LOCAL_HOME", str(folder.parent))
    return LocalEngine()


def test_the_folder_of_a_cluster_is_removed(folder: Path, engine: LocalEngine):
    removed = engine.remove("c")
    assert (removed.clusters, removed.nodes) == (("c",), 2)
    assert list(folder.parent.iterdir()) == []


def test_a_folder_that_cannot_be_removed_is_named_and_stays(
    folder: Path, engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(agent_holder, "remove_tree", lambda _: False)
    monkeypatch.setattr(agent_holder, "_WRITTEN_S", 0.1)
    with pytest.raises(ClusterError, match=str(folder)):
        engine.remove("c")
    assert engine.read_cluster(folder) is not None


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_root_kills_no_cluster_in_the_folder_of_another_user(folder: Path, engine: LocalEngine):
    labelled = {**os.environ, CLUSTER_VARIABLE: str(folder)}
    with subprocess.Popen(["sleep", "60"], env=labelled) as node:
        os.chown(folder.parent, 12345, 12345)
        assert engine.remove("c").clusters == ()
        assert node.poll() is None
        os.chown(folder.parent, 0, 0)
        assert engine.remove("c").clusters == ("c",)
        assert node.wait(10) < 0


def test_without_a_home_there_is_no_state_folder_in_the_current_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    assert state_folder() == Path("/.local/state/lab")
    assert cache_folder() == "/.cache/lab/recorder"
