"""Packages and data on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.engine import select
from lab.engine.packages import Prepared
from lab.errors import EngineAbsent
from tests.fake_engine import FakeEngine
from tests.golden import golden

READY = [
    Prepared(
        name="lab-packages:1", engine="fake", base="x:1", requirements=["tqdm"], added=["tqdm-4.whl"], size_bytes=5
    ),
    Prepared(name="lab-packages:2", engine="fake", base="x:1", requirements=["a", "b"], added=[], size_bytes=7),
]


@pytest.fixture
def engine(tmp_path: Path, own_homes: None, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """The only engine there is; of two images that it has ready, one is in use."""

    def no_local() -> None:
        raise EngineAbsent("no torch", "install it")

    engine = FakeEngine()
    monkeypatch.setattr(engine, "prepared", lambda: READY)
    monkeypatch.setattr(engine, "discard", lambda one: "a container uses it" if one.name.endswith("2") else "")
    monkeypatch.setitem(select.OPENERS, "docker", lambda: engine)
    monkeypatch.setitem(select.OPENERS, "local", no_local)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import os\n")
    (tmp_path / "requirements.txt").write_text("tqdm>=4 # bars\n")
    (tmp_path / "mnist").mkdir()
    return engine


def test_packages_and_data_of_the_command_line_are_those_of_the_cluster(lab, engine: FakeEngine, tmp_path: Path):
    assert lab("up", "--nodes", "1", "--name", "c", "--requirements", "requirements.txt", "--data", "m=mnist")[0] == 0
    shape = engine.clusters["c"].shape
    assert (shape.requirements, shape.data) == (("tqdm>=4",), {"m": tmp_path / "mnist"})
    assert lab("run", "train.py", "--name", "c", "--requirements", "requirements.txt", "--data", "m=mnist")[0] == 0
    code, _, said = lab("run", "train.py", "--name", "c", "--data", "other=mnist")
    assert code == 2
    assert "data: m=" in said


def test_a_dry_run_says_them(lab):
    _, said, _ = lab("run", "train.py", "--dry-run", "--requirements", "requirements.txt", "--data", "m=mnist")
    assert "packages: tqdm>=4\n" in said
    assert "data: m is " in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data", "m"], "found 'm'; allowed: NAME=FOLDER"),
        (["--data", "m="], "found 'm='; allowed: NAME=FOLDER"),
        (["--data", "m/n=mnist"], "found the name 'm/n'; allowed: letters, digits"),
        (["--data", "m=mist"], "mist' does not exist on this machine (did you mean"),
        (["--data", "m=train.py"], "train.py' is not a folder"),
        (["--data", "m=mnist", "--data", "m=mnist"], "m is given twice"),
        (["--requirements", "absent.txt"], "absent.txt:1:1: no such file"),
        (["--requirements", "requirement.txt"], "no such file (did you mean 'requirements.txt'?)"),
        (["--requirements", "train.py"], "train.py:1:1: found 'import os'"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(lab, words: list[str], message: str):
    code, out, said = lab("up", *words)
    assert (code, out) == (2, "")
    assert message in said
    assert "Traceback" not in said


def test_what_is_ready_is_listed_and_removed_where_nobody_uses_it(lab):
    _, said, _ = lab("image", "list")
    assert [line.split()[0] for line in said.splitlines()] == ["name", "lab-packages:1", "lab-packages:2"]
    assert json.loads(lab("image", "list", "--json")[1])[0]["added"] == ["tqdm-4.whl"]
    assert lab("image", "prune")[1] == golden(1)
    assert [one["stays"] for one in json.loads(lab("image", "prune", "--json")[1])] == ["", golden(2)]


def test_packages_are_made_ready_ahead_of_time(lab, engine: FakeEngine):
    code, said, _ = lab("image", "build", "--requirements", "requirements.txt", "--image", "x:1")
    assert (code, said) == (0, golden(1))
    assert engine.calls == ["prepare"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--requirements", "requirements.txt", "--torch", "2.0"], "the other options build it"),
        (["--image", "x:1"], "--image needs --requirements, which extends it"),
        (["--engine", "local"], "the local engine has no images"),
    ],
)
def test_options_of_the_node_image_and_of_packages_do_not_go_together(lab, words: list[str], message: str):
    code, _, said = lab("image", "build", *words)
    assert code == 2
    assert message in said


def test_a_cluster_that_is_up_says_them(lab, tmp_path: Path):
    words = ("--name", "c", "--requirements", "requirements.txt", "--data", "m=mnist")
    made = json.loads(lab("up", "--json", *words)[1])["shape"]
    assert (made["requirements"], made["data"]) == (["tqdm>=4"], {"m": str(tmp_path / "mnist")})
    assert json.loads(lab("status", "--json", "--name", "c")[1])
    assert golden(1, tmp_path / "mnist") in lab("status", "--name", "c")[1]
    assert json.loads(lab("run", "train.py", "--dry-run", "--json", *words)[1])
