"""Where hosts are: what a file says, what follows, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.errors import EngineUnavailable
from lab.features.swarm.hosts import Settings, follows, read_settings
from tests.golden import golden


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("LAB_SWARM", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "lab").mkdir()
    return tmp_path / "lab" / "swarm.json"


def test_without_a_file_nothing_is_known_beforehand(file: Path):
    assert read_settings() == Settings()


def test_the_file_says_where_things_are(file: Path):
    file.write_text(json.dumps({"manager": "ssh://a", "hosts": {"b": "context:b"}, "shared": "/srv", "made_by": "me"}))
    assert read_settings() == Settings(manager="ssh://a", hosts={"b": "context:b"}, shared="/srv")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ([], "holds no object"),
        ({"master": "a"}, "has a key 'master'; there are manager, hosts and shared"),
        ({"hosts": ["a"]}, r"has hosts \['a'\]; it takes an object of addresses by name"),
        ({"hosts": {"a": 1}}, "it takes an object of addresses"),
        ({"manager": 1}, "has manager 1; it takes an address"),
        ({"shared": "srv"}, "has shared 'srv'; it takes the absolute path of a folder"),
    ],
)
def test_what_can_mean_nothing_is_refused_with_what_was_found(file: Path, said: Any, told: str):
    file.write_text(json.dumps(said))
    with pytest.raises(EngineUnavailable, match=told):
        read_settings()


def test_a_file_that_cannot_be_read_or_was_named_and_is_not_there_is_a_sentence(
    file: Path, monkeypatch: pytest.MonkeyPatch
):
    file.write_text("{")
    with pytest.raises(EngineUnavailable, match=golden(1)):
        read_settings()
    monkeypatch.setenv("LAB_SWARM", "/none/here")
    with pytest.raises(EngineUnavailable, match=golden(2)):
        read_settings()


@pytest.mark.parametrize(
    ("manager", "address", "engine"),
    [
        ("ssh://me@a", "10.0.0.2", "ssh://me@10.0.0.2"),
        ("ssh://me@a:2222", "10.0.0.2", "ssh://me@10.0.0.2:2222"),
        ("tcp://a:2376", "10.0.0.2", "tcp://10.0.0.2:2376"),
        ("unix:///var/run/docker.sock", "10.0.0.2", None),
        ("", "10.0.0.2", None),
        ("ssh://a", "", None),
    ],
)
def test_a_host_can_be_reached_as_its_manager_can_if_that_says_where_it_is(
    manager: str, address: str, engine: str | None
):
    assert follows(manager, address) == engine
