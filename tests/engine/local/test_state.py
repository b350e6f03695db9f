"""What is left of a local cluster is found whenever its making or its removal was cut short."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lab.engine import agent_holder
from lab.engine.agent_holder import DESCRIPTION
from lab.engine.local.engine import LocalEngine
from lab.plan.cluster import Shape


def made(home: Path, name: str, *, description: str | None) -> Path:
    folder = home / name
    (folder / "site").mkdir(parents=True)
    (folder / "site" / "module.py").touch()
    if description is not None:
        (folder / DESCRIPTION).write_text(description)
    return folder


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalEngine:
    monkeypatch.setenv("LAB_LOCAL_HOME", str(tmp_path))
    return LocalEngine()


def test_a_folder_that_does_not_say_yet_what_it_is_has_no_nodes(tmp_path: Path, engine: LocalEngine) -> None:
    made(tmp_path, "begun", description=None)
    made(tmp_path, "half-written", description='{"shape"')
    made(tmp_path, "whole", description=json.dumps({"shape": Shape(nodes=2).to_json(), "network": "1.2"}))
    (tmp_path / "empty").mkdir()
    (tmp_path / "of-somebody" / "else").mkdir(parents=True)
    (tmp_path / "file").touch()

    assert engine.nodeless() == ["begun", "empty", "half-written"]


def test_clusters_in_a_folder_of_another_user_are_none_of_ours(
    tmp_path: Path, engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, "c", description=json.dumps({"shape": Shape(nodes=1).to_json(), "network": "1.2"}))
    assert [cluster.name for cluster in engine.find()] == ["c"]
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)

    assert engine.find("c") == engine.find() == []
    assert engine.nodeless() == []


def test_a_removal_that_is_killed_leaves_a_folder_that_still_says_what_it_is(
    tmp_path: Path, engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(tmp_path, "c", description=json.dumps({"shape": Shape(nodes=1).to_json(), "network": "1.2"}))
    for name in ("node0", "a", "z"):
        (folder / name).mkdir()

    remove_tree = agent_holder.remove_tree

    def killed_at_the_last(path: Path) -> None:
        if path == folder:
            raise KeyboardInterrupt
        remove_tree(path)

    monkeypatch.setattr(agent_holder, "remove_tree", killed_at_the_last)
    with pytest.raises(KeyboardInterrupt):
        engine.remove("c")

    assert [path.name for path in folder.iterdir()] == [DESCRIPTION]
    assert engine.read_cluster(folder) is not None
