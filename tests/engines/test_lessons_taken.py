"""Lessons taken by a person: right and wrong, by a pipe, and from Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lab
from lab.features.lessons.question import read_prediction
from lab.record.read import Record
from lab.run.options import RunOptions
from tests.engines.conftest import NODES, MakeCluster
from tests.golden import golden

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def own_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_PROGRESS", str(tmp_path / "progress"))


@pytest.mark.local_first
@pytest.mark.parametrize(("reply", "held"), [("b", True), ("[0.0]", False)])
def test_a_lesson_says_whether_a_prediction_held(
    make_cluster: MakeCluster, tmp_path: Path, reply: str, held: bool
) -> None:
    lesson = lab.learn("scatter", person="anna")
    taken = lesson.run(
        lesson.question.parse_reply(reply), make_cluster(nodes=NODES), options=RunOptions(runs=tmp_path / "runs")
    )
    assert (taken.prediction.right, taken.prediction.answer) == (held, "[20.0]")
    assert taken.next == "rank_table"
    assert "scatter #1" in str(taken)
    assert golden(1) in taken._repr_html_()
    assert taken.result.path is not None
    assert read_prediction(Record(path=taken.result.path)) == taken.prediction


@pytest.mark.parametrize("engine", ["local"], indirect=True)
def test_what_is_computed_is_judged_at_every_size_and_what_is_stated_at_its_own(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    options = RunOptions(runs=tmp_path / "runs", nodes=2, nproc_per_node=2)
    ring, barrier = lab.learn("ring_all_reduce", person="anna"), lab.learn("barrier", person="anna")
    taken = ring.run("6", make_cluster(nodes=NODES), options=options)
    assert (taken.prediction.answer, taken.prediction.right) == ("6", True)
    taken = barrier.run("at once", make_cluster(nodes=NODES), options=options)
    assert (taken.prediction.answer, taken.prediction.right) == ("", None)


@pytest.mark.local
def test_a_pipe_takes_a_lesson(person: None, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lab.cli.main", "learn", "scatter", "--json", "--engine", "local", "--as", "ben"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, input="b\n", cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["prediction"], data["right"], data["verdict"]) == ("[20.0]", True, "passed")
    assert (tmp_path / "progress" / "ben.jsonl").read_text().count("\n") == 1
