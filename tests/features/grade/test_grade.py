"""`lab grade` on an engine without nodes."""

from __future__ import annotations

import _thread
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.engine import select
from lab.engine.protocol import Traits
from lab.errors import EngineUnavailable
from lab.node.messages.agent import Limited
from tests.fake_engine import END, FakeEngine, exits, notes
from tests.golden import golden

Lab = Callable[..., tuple[int, str, str]]


@pytest.fixture
def engine(tmp_path: Path, own_homes: None, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """One on which every submission notes the same."""
    engine = FakeEngine({rank: [notes("sum", 3), exits()] for rank in (0, 1)})
    for name in ("docker", "local"):
        monkeypatch.setitem(select.OPENERS, name, lambda: engine)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "task/sum.yaml": "script: sum.py\nnodes: 2\n"
        "expect: {notes: {sum: 3, more: 4}}\ngrade: {points: {note sum: 2}}\n",
        "task/sum.py": "print()\n",
        "in/alice.py": "print()\n",
        "in/bob/sum.py": "print()\n",
        "in/carol/x.txt": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return engine


GRADE = ("grade", "in", "--scenario", "task/sum.yaml")


def test_every_submission_has_a_row_a_page_and_a_grade_as_data(lab: Lab, engine: FakeEngine, tmp_path: Path) -> None:
    code, out, err = lab(*GRADE, "--csv", "g.csv", "--html", "pages")
    assert code == 0, err
    assert [line.split()[:4] for line in out.splitlines()[1:4]] == [
        ["alice", "3", "of", "4"],
        ["bob", "3", "of", "4"],
        ["carol", "0", "of", "4"],
    ]
    assert golden(1) in out
    assert out.count("isolation: strict cluster") == 1
    assert len((tmp_path / "g.csv").read_text().splitlines()) == 4
    assert len(list((tmp_path / "pages").iterdir())) == 4
    assert "[3/3]" in err
    assert engine.clusters == {}
    assert not list(tmp_path.glob("state/lab/locks/*"))
    code, out, err = lab(*GRADE, "--json")
    assert [grade["points"] for grade in json.loads(out)["grades"]] == [3, 3, 0]
    assert err == ""


def test_clusters_are_strict_have_limits_and_are_used_again_while_that_is_safe(lab: Lab, engine: FakeEngine) -> None:
    shapes = []
    made = engine.create
    engine.create = lambda cluster, shape, **more: (shapes.append(shape), made(cluster, shape, **more))[1]  # type: ignore[method-assign]
    assert lab(*GRADE)[0] == 0
    (shape,) = shapes
    assert shape.strict
    assert (shape.nodes, shape.cpus, shape.memory_bytes) == (2, 4.0, 2 << 30)
    shapes.clear()
    engine.acts[0].insert(0, Limited(0.0, "node0", what="processes", limit=256, excess=1))
    _, out, _ = lab(*GRADE, "--json")
    assert [grade["points"] for grade in json.loads(out)["grades"]] == [0, 0, 0]
    assert "limit of 256 processes" in json.loads(out)["grades"][0]["forfeited"]
    assert len(shapes) == 3, "other nodes after a limit was reached, for whoever comes next"
    shapes.clear()
    lab(*GRADE, "-j", "2")
    assert {shape.cpus for shape in shapes} == {1.0}


def test_what_the_lab_cannot_run_is_tried_again_and_then_not_graded(lab: Lab, engine: FakeEngine) -> None:
    engine.answers["node1"] = {"claim": [END]}
    code, out, _ = lab(*GRADE, "--json")
    assert code == 1
    assert [grade["points"] for grade in json.loads(out)["grades"]] == [None, None, 0]
    assert golden(1) in json.loads(out)["grades"][0]["reason"]
    assert engine.clusters == {}


def test_strangers_are_graded_on_docker_only_unless_somebody_trusts_them(
    lab: Lab, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.traits = Traits()
    code, _, err = lab(*GRADE, "--engine", "local")
    assert code == 2
    assert golden(1) in err
    assert "--trust" in err
    code, out, _ = lab(*GRADE, "--engine", "local", "--trust", "--csv", "g.csv")
    assert code == 0
    assert "isolation: none (--trust)" in out
    assert Path("g.csv").read_text().count("none (--trust)") == 3

    def absent() -> FakeEngine:
        raise EngineUnavailable("no engine answers")

    monkeypatch.setitem(select.OPENERS, "docker", absent)
    code, _, err = lab(*GRADE)
    assert code == 3
    assert golden(2) in err


def test_the_scenario_and_the_submissions_may_lie_in_one_folder(lab: Lab, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "task", tmp_path / "in", dirs_exist_ok=True)
    code, out, err = lab("grade", "in", "--json")
    assert code == 0, err
    assert [grade["name"] for grade in json.loads(out)["grades"]] == ["alice", "bob", "carol"]


def test_an_assignment_that_mounts_a_folder_needs_trust(lab: Lab, engine: FakeEngine, tmp_path: Path) -> None:
    (tmp_path / "task" / "data").mkdir()
    with (tmp_path / "task" / "sum.yaml").open("a") as file:
        file.write("data: {numbers: data}\n")
    code, _, err = lab(*GRADE)
    assert code == 2
    assert golden(1) in err
    assert lab(*GRADE, "--trust")[0] == 0


@pytest.mark.parametrize("late", [False, True], ids=["while it waits", "before it has gone on from the start"])
def test_ctrl_c_ends_it_with_the_grades_so_far_and_leaves_nothing(
    late: bool, lab: Lab, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected = engine.connect
    start = threading.Thread.start
    came = threading.Event()

    def connect(*words: Any) -> Any:
        if engine.calls.count("connect") == 1:  # in the second run, whose ranks never end
            engine.acts = {0: [], 1: []}
            _thread.interrupt_main()
            came.set()
        return connected(*words)

    def start_and_wait(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "pool worker":
            assert came.wait(30)

    monkeypatch.setattr(engine, "connect", connect)
    if late:
        monkeypatch.setattr(threading.Thread, "start", start_and_wait)
    code, _, err = lab(*GRADE, "--csv", "g.csv")
    assert code == 130
    assert golden(1) in err
    assert len(Path("g.csv").read_text().splitlines()) == 2
    assert engine.clusters == {}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("in",), "in has no scenario"),
        (("nowhere",), "nowhere is not a folder"),
        (("task", "--scenario", "task/sum.yaml"), "task has no submissions"),
        (("in", "--scenario", "none.yaml"), "none.yaml"),
    ],
)
def test_what_cannot_be_graded_is_refused_with_a_sentence(
    lab: Lab, engine: FakeEngine, words: tuple[str, ...], why: str
) -> None:
    code, _, err = lab("grade", *words)
    assert code == 2
    assert why in err
    assert engine.calls == []
