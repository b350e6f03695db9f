"""Submissions of strangers, honest and hostile ones in turn: each honest one earns its points, no other earns any."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.cli.main import main
from lab.engine import ownership
from tests.golden import golden
from tests.hostile.honest import honest

if TYPE_CHECKING:
    import docker

HERE = Path(__file__).parent
HOSTILE = sorted(path.stem for path in (HERE / "submissions").iterdir())
QUICK = ("right_then_fills", "reads_its_memory", "leaves_pipes_for_the_check", "writes_results", "replaces_the_check")
"""What keeps ports, and costs nodes as the first of these does, is in `test_ports_left.py`."""
QUICK_HONEST = (
    *("right_by_ring", "answer_is_a_pipe", "right_and_leaves_much_beside_its_answer"),
    *("answer_is_nested", "right_and_finds_nothing_of_others"),
)
PRINTS = {
    "looks_for_the_answer": "found: []",
    "reads_its_memory": "found: []",
    "reaches_out": "listening to []",
    "changes_clocks": "",
    "traces_other_ranks": "",
}
"""What these print of what they could do, if that is nothing, and they came to the end."""
pytestmark = [pytest.mark.docker, pytest.mark.half]
Grade = Callable[..., dict[str, Any]]


@pytest.fixture
def things_left(docker_engine: docker.DockerClient) -> Iterator[None]:
    """Nothing is left of any cluster of this test, nor of what was handed in."""

    def there() -> set[str]:
        mine = {"label": f"{ownership.OWNER}={ownership.current_owner()}"}
        found = docker_engine.containers.list(all=True, filters=mine, ignore_removed=True)
        found += [*docker_engine.networks.list(filters=mine), *docker_engine.volumes.list(filters=mine)]
        names = {thing.name for thing in found if f"grade-{os.getpid():x}-" in thing.name}
        return names | {path.name for path in Path(tempfile.gettempdir()).glob(f"lab-grade-{os.getpid()}-*")}

    yield
    assert there() == set()


@pytest.fixture
def grade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, things_left: None, capsys: Any) -> Grade:
    """Grades submissions by name, in turn an honest and a hostile one; returns what came out by name."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)

    def grade(good: list[str], bad: list[str], *options: str) -> dict[str, Any]:
        folder = tmp_path / "in"
        folder.mkdir()
        for number in range(max(len(good), len(bad))):
            for name in good[number : number + 1]:
                (folder / f"{number:02}a_{name}.py").write_text(honest()[name][0])
            for path in [*(HERE / "submissions").glob(f"{bad[number]}*")] if number < len(bad) else []:
                target = folder / f"{number:02}b_{path.name}"
                shutil.copytree(path, target) if path.is_dir() else shutil.copyfile(path, target)
        words = ["--scenario", str(HERE / "assignment" / "sum.yaml"), *options]
        words += ["--html", "pages", "--json"]
        assert main(["grade", str(folder), *words]) == 0
        grades = json.loads(capsys.readouterr().out)["grades"]
        return {one["name"].partition("_")[2]: one for one in grades}

    return grade


def wrongs(grades: dict[str, Any]) -> list[str]:
    """Where points are not those that they should be, and where a submission found what none may see."""
    expected = {name: points for name, (_, points) in honest().items()} | dict.fromkeys(HOSTILE, 0.0)
    found = [
        f"{name}: {one['points']}, not {expected[name]}: {one['reason']} {one['forfeited']}"
        for name, one in grades.items()
        if one["points"] != expected[name]
    ]
    assert not {name for name, _ in honest().items()} & set(HOSTILE)
    for name, harmless in PRINTS.items():
        if name in grades:
            logs = {path.read_text().strip() for path in Path(grades[name]["path"]).glob("logs/rank*.log")}
            found += [f"{name}: {log}" for log in logs - {"", harmless}]
    return found


@pytest.mark.parametrize("engine", ["docker"])
def test_an_honest_submission_between_hostile_ones_earns_its_points(grade: Grade, engine: str) -> None:
    shape = ("--nodes", "1", "--nproc-per-node", "4")  # half of the nodes to make anew
    grades = grade(list(QUICK_HONEST), list(QUICK), "--timeout", "100s", *shape)

    assert wrongs(grades) == []
    assert len(grades) == len(QUICK_HONEST) + len(QUICK)
    assert golden(1) in grades["right_then_fills"]["forfeited"]
    (check,) = [score for score in grades["answer_is_a_pipe"]["scores"] if score["what"] == "check"]
    assert golden(2) in check["told"][0]
    left_out = " ".join(grades["right_and_leaves_much_beside_its_answer"]["told"])
    assert golden(3) in left_out
    assert golden(4) in left_out


def test_the_docs_say_what_comes_of_each() -> None:
    told = (HERE / "submissions.md").read_text()
    assert [name for name in HOSTILE if f"\n| `{name}` |" not in told] == []


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", ["docker"])
def test_all_honest_and_all_hostile_submissions_in_one_call_are_graded_rightly(grade: Grade, engine: str) -> None:
    good = list(honest())
    assert len(good) >= 30
    assert len(HOSTILE) >= 30

    grades = grade(good, HOSTILE, "--timeout", "25s")

    assert len(grades) == len(good) + len(HOSTILE)
    assert wrongs(grades) == []
    for page in Path("pages").iterdir():
        text = page.read_text()
        assert "\x1b" not in text
        assert "<script>alert" not in text


CHECKED = """
import os
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total, top = torch.tensor([float(dist.get_rank())]), torch.tensor([1.0])
dist.all_reduce(total)
dist.all_reduce(top, op=dist.ReduceOp.MAX)
assert [total.item(), top.item()] == [1.0, 1.0]
assert os.statvfs("/").f_flag & os.ST_RDONLY, "the cluster is not strict"
dist.destroy_process_group()
"""
ASSIGNMENT = """
script: solution.py
nodes: 1  # half of the nodes to make for each of four clusters
nproc_per_node: 2
expect: {mutants: 80, check: "verify.py:check"}
grade: {points: {mutants: 5}}
"""


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("grade")
def test_checks_of_a_submission_that_notice_mutants_earn_points(tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "task.yaml").write_text(ASSIGNMENT)
    (tmp_path / "verify.py").write_text("def check(results):\n    pass\n")
    (tmp_path / "solution.py").write_text(CHECKED)
    (folder / "strong.py").write_text(CHECKED)
    (folder / "weak.py").write_text(CHECKED.replace("assert [", "_ = ["))
    (folder / "empty.py").write_text("pass\n")
    assert main(["grade", str(folder), "--scenario", "task.yaml", "--html", "pages", "--json"]) == 0
    grades = {one["name"]: one for one in json.loads(capsys.readouterr().out)["grades"]}
    assert {name: one["points"] for name, one in grades.items()} == {"strong": 7.0, "weak": 2.0, "empty": 2.0}
    assert golden(1) in grades["empty"]["reason"]
    (weak,) = (tmp_path / "pages").glob("*weak.html")
    assert golden(2) in weak.read_text()
