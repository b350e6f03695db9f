"""Which engine is taken, and what a person is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.engine import select as subject
from lab.engine.ownership import check_name, default_name
from lab.engine.select import CHOICES, available_engines, engine_names, select_engine
from lab.errors import EngineUnavailable, UsageError
from tests.fake_engine import FakeEngine
from tests.golden import golden


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeEngine | str]:
    """What answers: an engine, or the reason why not."""
    found: dict[str, FakeEngine | str] = {"docker": FakeEngine(), "local": FakeEngine()}
    monkeypatch.setenv("LAB_LOCAL_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def opener(name: str):
        def open_it() -> FakeEngine:
            engine = found[name]
            if isinstance(engine, str):
                raise EngineUnavailable(engine, f"fix {name}")
            return engine

        return open_it

    monkeypatch.setattr(subject, "OPENERS", {name: opener(name) for name in found})
    return found


def test_auto_takes_docker_without_a_word(engines):
    assert select_engine("auto", "c") == (engines["docker"], "")


def test_auto_takes_the_local_engine_where_the_cluster_is_there(engines, tmp_path: Path):
    (tmp_path / "c").mkdir()
    assert select_engine("auto", "c") == (engines["local"], "")
    assert select_engine("auto", "d") == (engines["docker"], "")


def test_auto_without_docker_takes_the_local_engine_and_says_why(engines):
    engines["docker"] = "no Docker"
    assert select_engine("auto", "c") == (engines["local"], golden(1))


def test_auto_without_any_gives_both_reasons_and_a_fix(engines):
    engines.update(docker="no Docker", local="no torch")
    with pytest.raises(EngineUnavailable, match=golden(1)) as caught:
        select_engine("auto")
    assert caught.value.hint == "fix local"


@pytest.mark.parametrize("choice", ["docker", "local"])
def test_the_engine_that_was_asked_for_is_never_replaced(engines, choice: str):
    engines[choice] = "not there"
    with pytest.raises(EngineUnavailable, match="not there"):
        select_engine(choice)


@pytest.mark.features
def test_every_engine_can_be_asked_for_and_opened():
    assert [*CHOICES] == ["auto", *engine_names()] == ["auto", "docker", "local", "slurm", "kubernetes"]
    assert all(name in CHOICES for name in CHOICES)
    assert "nothing" not in CHOICES
    with pytest.raises(UsageError, match=golden(1)):
        select_engine("lokal")


def test_available_engines_are_those_that_answer_and_the_others_say_why_not(engines):
    engines["docker"] = "no Docker"
    found, silent = available_engines()
    assert (found, {name: why.message for name, why in silent.items()}) == ([engines["local"]], {"docker": "no Docker"})


# -- names


@pytest.mark.parametrize("name", ["a", "0", "a-b", "a" * 40, "my-cluster-3"])
def test_a_plain_name_is_allowed(name: str):
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "A", "a_b", "a.b", "a b", "a" * 41, "é", "a\n"])
def test_a_name_that_docker_or_dns_would_not_take_is_refused(name: str):
    with pytest.raises(UsageError, match=golden(1)):
        check_name(name)


@pytest.mark.parametrize(
    ("folder", "readable"),
    [
        ("my project", "my-project-"),
        ("Über uns", "uber-uns-"),
        ("目录", "lab-"),
        ("--", "lab-"),
        ("a" * 80, "a" * 24 + "-"),
        ("x" * 23 + "-y", "x" * 23 + "-"),
    ],
)
def test_a_default_name_is_readable_allowed_and_the_same_again(tmp_path: Path, folder: str, readable: str):
    name = default_name(tmp_path / folder)
    assert name.startswith(readable)
    assert check_name(name) == name == default_name(tmp_path / folder)


def test_folders_of_the_same_name_have_different_clusters(tmp_path: Path):
    assert default_name(tmp_path / "a" / "x") != default_name(tmp_path / "b" / "x")
