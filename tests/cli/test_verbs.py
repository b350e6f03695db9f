"""Verbs that print state: JSON on `--json`, and text that says the same."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from lab.cli.main import main
from lab.engine import select
from lab.errors import EngineAbsent, EngineUnavailable
from lab.feature import all_entries
from lab.plan.cluster import Shape
from lab.record.layout import FILES
from lab.run.lock import ClusterLock
from tests.fake_engine import FakeEngine, exits, notes, prints
from tests.golden import golden


@pytest.fixture
def engine(tmp_path: Path, own_homes: None, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """The engine that every verb finds."""
    engine = FakeEngine({0: [prints("zero\n"), notes("x", 1), exits()], 1: [prints("one\n", 2), exits()]})
    monkeypatch.setitem(select.OPENERS, "docker", lambda: engine)
    monkeypatch.setitem(select.OPENERS, "local", no_local)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "train.py").write_text("print()\n")
    (tmp_path / "s" / "one.yaml").write_text("name: one\nlearn: a thing\nscript: train.py\nnodes: 2\n")
    return engine


def no_local() -> None:
    raise EngineAbsent("no torch", "install it")


def as_json(answer: tuple[int, str, str]) -> Any:
    code, out, _ = answer
    assert code == 0, answer
    return json.loads(out)


def test_up_as_json(lab):
    found = as_json(lab("up", "--nodes", "2", "--name", "c", "--json"))
    assert (found["name"], found["made"], found["state"], len(found["nodes"])) == ("c", True, "ready", 2)
    assert as_json(lab("up", "--name", "c", "--json"))["made"] is False


def test_up_as_text(lab):
    assert golden(1) in lab("up", "--nodes", "2", "--name", "c")[1]
    assert golden(2) in lab("up", "--name", "c")[1]
    assert lab("up", "--name", "c", "--quiet") == (0, "", "")


def test_up_in_another_shape_as_json_is_an_error_in_json(lab):
    lab("up", "--nodes", "2", "--name", "c")
    code, out, err = lab("up", "--nodes", "3", "--name", "c", "--json")
    assert code == 2
    assert "nodes: 2, requested 3" in json.loads(out)["error"]
    assert json.loads(out)["exit_code"] == 2
    assert "other settings" in err


def test_run_as_json_prints_nothing_else_on_standard_output(lab):
    found = as_json(lab("run", "s/one.yaml", "--name", "c", "--json"))
    assert (found["verdict"], found["exit_code"], len(found["ranks"])) == ("passed", 0, 2)
    assert found["ranks"][0]["notes"] == {"x": 1}


def test_variables_of_a_run_are_added_to_those_of_the_scenario_whatever_the_cluster_has(lab):
    found = as_json(lab("run", "s/one.yaml", "--env", "A=1", "--env", "B=two words", "--dry-run", "--json"))
    assert all(worker["env"].items() >= {"A": "1", "B": "two words"}.items() for worker in found["workers"])
    lab("up", "--nodes", "2", "--name", "c")
    record = as_json(lab("run", "s/one.yaml", "--name", "c", "--env", "A=1", "--json"))["path"]
    plan = json.loads((Path(record) / "plan.json").read_text())
    assert [worker["env"]["A"] for worker in plan["workers"]] == ["1", "1"]


@pytest.mark.parametrize("scenarios", [["s/one.yaml"], ["s/one.yaml", "s/one.yaml"]])
def test_a_run_on_a_cluster_that_is_not_as_asked_for_is_refused(lab, scenarios: list[str]):
    lab("up", "--nodes", "2", "--name", "c", "--cpus", "2")
    code, _, err = lab("run", *scenarios, "--name", "c", "--cpus", "1")
    assert code == 2
    assert golden(1) in err
    assert lab("run", *scenarios, "--name", "c", "--cpus", "2")[0] == 0


def test_run_as_text_prefixes_every_line(lab):
    code, out, _ = lab("run", "s/one.yaml", "--name", "c")
    assert code == 0
    assert "node0/rank0 | zero\n" in out
    assert "node1/rank1 | one\n" in out
    assert "passed" in out


def test_a_quiet_run_prints_the_verdict_only(lab):
    _, out, err = lab("run", "s/one.yaml", "--name", "c", "--quiet")
    assert "rank0 |" not in out
    assert "passed" in out
    assert err == ""


def test_a_run_that_failed_has_exit_code_1_and_says_who(lab, engine: FakeEngine):
    engine.acts[1] = [exits(3)]
    code, out, _ = lab("run", "s/one.yaml", "--name", "c")
    assert code == 1
    assert golden(1) in out


def test_a_dry_run_only_looks_whether_there_is_a_cluster(lab, engine: FakeEngine):
    found = as_json(lab("run", "s/one.yaml", "--dry-run", "--json", "--", "--epochs", "3"))
    assert found["world_size"] == 2
    assert found["workers"][1]["argv"] == ["train.py", "--epochs", "3"]
    assert "MASTER_PORT" in lab("run", "s/one.yaml", "--dry-run")[1]
    assert set(engine.calls) == {"find"}


@pytest.mark.features
def test_a_dry_run_shows_what_starts_the_workers(lab):
    shown = lab("run", "s/one.yaml", "--launcher", "torchrun", "--dry-run")[1]
    assert "torchrun there" in shown
    assert "--local-addr node0" in shown
    found = as_json(lab("run", "s/one.yaml", "--launcher", "torchrun", "--dry-run", "--json"))
    assert found["launcher"] == "torchrun"
    assert [starter["node"] for starter in found["starters"]] == [f"node{rank}" for rank in range(found["nnodes"])]


def test_a_dry_run_needs_no_engine(lab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(select.OPENERS, "docker", no_local)
    assert as_json(lab("run", "s/one.yaml", "--dry-run", "--json"))["world_size"] == 2
    assert as_json(lab("run", "s/train.py", "--dry-run", "--json"))["world_size"] == 1


def test_a_dry_run_has_the_size_that_the_run_on_the_cluster_has(lab):
    lab("up", "--nodes", "3", "--nproc-per-node", "2", "--name", "c")
    dry = as_json(lab("run", "s/train.py", "--name", "c", "--dry-run", "--json"))
    assert (dry["nnodes"], dry["nproc_per_node"], dry["world_size"]) == (3, 2, 6)
    record = Path(as_json(lab("run", "s/train.py", "--name", "c", "--json"))["path"])
    assert json.loads((record / "plan.json").read_text())["world_size"] == dry["world_size"]


def test_a_dry_run_on_a_cluster_that_is_too_small_is_refused_as_the_run_is(lab):
    lab("up", "--nodes", "3", "--name", "c")
    words = ("run", "s/one.yaml", "--name", "c", "--nodes", "9")
    assert lab(*words, "--dry-run") == lab(*words)
    assert golden(1) in lab(*words, "--dry-run")[2]


def test_a_dry_run_of_several_gives_a_script_the_size_of_the_cluster_that_they_share(lab):
    plans = as_json(lab("run", "s/train.py", "s/one.yaml", "--dry-run", "--json"))
    assert [plan["world_size"] for plan in plans] == [2, 2]


def test_a_dry_run_says_what_would_be_made_for_it_and_for_a_cluster_that_is_up_nothing(lab, engine: FakeEngine):
    (made,) = as_json(lab("run", "s/one.yaml", "--name", "c", "--dry-run", "--json"))["requests"]
    assert made["what"] == "cluster c"
    assert Shape.from_json(made["body"]["shape"]) == Shape(nodes=2)
    assert golden(1) in lab("run", "s/one.yaml", "--name", "c", "--dry-run")[1]
    lab("up", "--nodes", "2", "--name", "c")
    assert as_json(lab("run", "s/one.yaml", "--name", "c", "--dry-run", "--json"))["requests"] == []
    assert "would make" not in lab("run", "s/one.yaml", "--name", "c", "--dry-run")[1]


def test_a_dry_run_of_several_makes_what_they_share_once_and_what_one_wants_for_itself(lab):
    Path("s/picky.yaml").write_text("name: picky\nscript: train.py\nnodes: 1\nresources: {cpus: 1}\n")
    plans = as_json(lab("run", "s/one.yaml", "s/picky.yaml", "s/train.py", "--name", "c", "--dry-run", "--json"))
    assert [[made["what"] for made in plan["requests"]] for plan in plans] == [["cluster c"], ["cluster c-own"], []]
    assert Shape.from_json(plans[1]["requests"][0]["body"]["shape"]) == Shape(nodes=1, cpus=1.0)


def test_a_dry_run_says_what_would_be_recorded(lab):
    assert "trace:" not in lab("run", "s/one.yaml", "--dry-run")[1]
    assert "trace: off" in lab("run", "s/one.yaml", "--dry-run", "--no-trace")[1]
    assert golden(1) in lab("run", "s/one.yaml", "--dry-run", "--trace-values", "9")[1]
    found = as_json(lab("run", "s/one.yaml", "--dry-run", "--json", "--no-trace"))
    assert found["trace"] == {"on": False, "values": None}


def test_a_number_of_values_is_a_whole_number(lab):
    code, _, said = lab("run", "s/one.yaml", "--trace-values", "many")
    assert code == 2
    assert golden(1) in said


def test_status_as_json(lab):
    assert as_json(lab("status", "--json")) == []
    lab("up", "--nodes", "2", "--name", "c")
    (found,) = as_json(lab("status", "--json"))
    assert (found["name"], found["state"], found["busy"]) == ("c", "ready", None)
    assert found["memory_bytes"] == {"node0": None, "node1": None}


@contextmanager
def held(name: str) -> Iterator[None]:
    with ClusterLock("fake", name).held("a run of x"):
        yield


def test_status_says_who_has_a_cluster(lab):
    lab("up", "--nodes", "1", "--name", "c")
    with held("c"):
        assert golden(1) in lab("status")[1]
        assert as_json(lab("status", "--json"))[0]["busy"]["purpose"] == golden(2)
    assert "idle" in lab("status")[1]


def test_status_without_a_cluster_says_which_engines_answer(lab):
    assert lab("status")[1] == golden(1)


def test_down_as_json(lab):
    lab("up", "--nodes", "2", "--name", "c")
    assert as_json(lab("down", "--name", "c", "--json"))["nodes"] == 2
    assert as_json(lab("down", "--name", "c", "--json"))["clusters"] == []
    assert lab("down", "--name", "c")[1] == "nothing to remove\n"


def test_down_all_removes_every_cluster(lab, engine: FakeEngine):
    for name in ("a", "b"):
        lab("up", "--nodes", "1", "--name", name)
    assert golden(1) in lab("down", "--all")[1]
    assert engine.clusters == {}


def test_runs_show_and_logs_as_json(lab):
    assert as_json(lab("runs", "--json")) == []
    lab("run", "s/one.yaml", "--name", "c")
    (one,) = as_json(lab("runs", "--json"))
    assert one["scenario"] == "one"
    assert as_json(lab("show", "--json"))["run"] == one["run"]
    lines = [json.loads(line) for line in lab("logs", "--json")[1].splitlines()]
    assert {(line["rank"], line["stream"], line["text"]) for line in lines} == {
        (0, "stdout", "zero\n"),
        (1, "stderr", "one\n"),
    }


def test_runs_and_show_as_text(lab):
    lab("run", "s/one.yaml", "--name", "c")
    assert "passed" in lab("runs")[1]
    shown = lab("show")[1]
    assert "cluster c" in shown
    assert "exit 0" in shown


def test_logs_of_one_rank_are_as_it_wrote_them_and_others_have_a_prefix(lab):
    lab("run", "s/one.yaml", "--name", "c")
    assert lab("logs", "--rank", "0")[1] == "zero\n"
    assert lab("logs", "--node", "node1")[1] == "node1/rank1 | one\n"
    assert sorted(lab("logs")[1].splitlines()) == ["node0/rank0 | zero", "node1/rank1 | one"]
    assert lab("logs", "--follow")[0] == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["logs", "--rank", "9"], "has no rank 9; it has ranks 0 to 1"),
        (["logs", "--node", "node9"], "has no node 'node9'"),
        (["show", "nothing-like-it"], "there is no run 'nothing-like-it'"),
    ],
)
def test_what_a_record_does_not_hold_is_refused(lab, words: list[str], sentence: str):
    lab("run", "s/one.yaml", "--name", "c")
    code, _, err = lab(*words)
    assert code in (1, 2)
    assert sentence in err


def test_following_a_run_ends_when_whoever_ran_it_is_dead(lab, tmp_path: Path):
    lab("run", "s/one.yaml", "--name", "c")
    (record,) = (tmp_path / ".lab" / "runs").iterdir()
    (record / "result.json").unlink()
    answers: list[Any] = []
    follower = threading.Thread(target=lambda: answers.append(lab("logs", "--follow")), daemon=True)
    with (record / "logs" / "lock").open("ab") as index:
        fcntl.flock(index, fcntl.LOCK_EX)  # as whoever writes it does
        follower.start()
        follower.join(0.5)
        assert follower.is_alive()
    follower.join(5)
    assert not follower.is_alive()
    assert sorted(answers[0][1].splitlines()) == ["node0/rank0 | zero", "node1/rank1 | one"]


def test_exec_needs_a_cluster_and_a_node_of_it(lab):
    assert golden(1) in lab("exec", "node0", "--name", "c", "--", "true")[2]
    lab("up", "--nodes", "1", "--name", "c")
    assert lab("exec", "node0", "--name", "c", "--", "true")[0] == 0
    assert lab("exec", "0", "--name", "c", "--", "true")[0] == 0
    code, _, err = lab("exec", "node7", "--name", "c", "--", "true")
    assert code == 2
    assert "allowed: node0" in err


@pytest.mark.features
def test_stop_and_start_say_which_nodes_and_status_shows_them(lab):
    assert golden(1) in lab("stop", "node0", "--name", "c")[2]
    lab("up", "--nodes", "3", "--name", "c")
    assert lab("stop", "node1", "2", "--name", "c")[1] == golden(2)
    assert [line.split()[:2] for line in lab("status", "--name", "c")[1].splitlines()[2:]] == [
        ["node0", "running"], ["node1", "stopped"], ["node2", "stopped"],
    ]  # fmt: skip
    code, _, err = lab("exec", "node1", "--name", "c", "--", "true")
    assert (code, "`lab start node1`" in err) == (2, True)
    assert as_json(lab("start", "node2", "--name", "c", "--json"))["nodes"][2]["state"] == "running"
    assert golden(3) in lab("start", "--name", "c")[1]


@pytest.mark.features
def test_scenarios_and_validate_as_json(lab, tmp_path: Path):
    listed = as_json(lab("scenarios", "s", "--json"))
    assert [row["name"] for row in listed] == ["one"]
    assert as_json(lab("validate", "s", "--json"))[0]["valid"] is True
    (tmp_path / "s" / "bad.yaml").write_text("nodes: 2\nexpect: {}\n")
    code, out, _ = lab("validate", "s", "--json")
    assert code == 2
    bad, good = json.loads(out)
    assert (bad["valid"], good["valid"], good["problems"]) == (False, True, [])
    [problem] = bad["problems"]
    assert (problem["file"], problem["line"], problem["column"]) == ("s/bad.yaml", 1, 1)
    assert bad["problem"] == f"s/bad.yaml:1:1: {problem['message']}"
    assert lab("scenarios", "s", "--json")[0] == 2


def test_doctor_as_json(lab):
    code, out, _ = lab("doctor", "--json", "--nodes", "1")
    findings = json.loads(out)
    assert code in (0, 1)
    assert {"level", "what", "found", "fix"} <= findings[0].keys()
    assert "leftovers" in [finding["what"] for finding in findings]


def test_doctor_names_a_cluster_of_a_dead_run(lab, engine: FakeEngine):
    lab("up", "--nodes", "1", "--name", "c")
    from dataclasses import replace

    engine.clusters["c"] = replace(engine.clusters["c"], run="dead")
    assert golden(1) in lab("doctor")[1]


def test_no_engine_at_all_is_exit_code_3_with_both_reasons(lab, monkeypatch: pytest.MonkeyPatch):
    def no_docker() -> None:
        raise EngineUnavailable("no Docker", "start it")

    monkeypatch.setitem(select.OPENERS, "docker", no_docker)
    code, _, err = lab("up")
    assert code == 3
    assert golden(1) in err
    assert "install it" in err
    assert lab("doctor", "--json")[0] == 3


def test_auto_falls_back_and_says_so(lab, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch):
    def no_docker() -> None:
        raise EngineUnavailable("no Docker", "start it")

    monkeypatch.setitem(select.OPENERS, "docker", no_docker)
    monkeypatch.setitem(select.OPENERS, "local", lambda: engine)
    assert golden(1) in lab("up", "--nodes", "1", "--name", "c")[2]


@pytest.mark.features
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("s/one.yaml", "--interactive", "0"), "there is no terminal for an interactive rank\n"),
        (("s/one.yaml", "s/two.yaml", "--stdin"), "2 scenarios cannot share the terminal or standard input\n"),
        (("s/one.yaml", "--interactive", "7", "--dry-run"), "--interactive: there is no rank 7; allowed: 0 to"),
    ],
)
def test_who_cannot_have_the_terminal_is_refused_before_anything_is_made(
    lab, engine: FakeEngine, words: tuple[str, ...], said: str
):
    Path("s/two.yaml").write_text("script: train.py\n")
    code, _, err = lab("run", *words)
    assert (code, said in err) == (2, True), err
    assert "create" not in engine.calls


def test_logs_show_what_would_act_on_a_terminal_unless_they_are_asked_for_as_they_are(lab, engine: FakeEngine):
    engine.acts = {0: [prints("a\x1b]0;t\x07\x1b[31mb\n"), exits()]}
    lab("run", "s/one.yaml", "--name", "c", "--nodes", "1", "--quiet")
    for words, shown in (
        (("--rank", "0"), "a\\x1b]0;t\\x07\x1b[31mb\x1b[0m\n"),
        (("--rank", "0", "--raw"), "a\x1b]0;t\x07\x1b[31mb\n"),
        ((), "node0/rank0 | a\\x1b]0;t\\x07\x1b[31mb\x1b[0m\n"),
        (("--raw",), "node0/rank0 | a\x1b]0;t\x07\x1b[31mb\n"),
    ):
        assert lab("logs", *words)[1] == shown


# -- names that are nearly right, and engines that do not answer


def test_a_run_on_a_cluster_that_is_not_there_says_so_and_what_may_have_been_meant(lab):
    assert golden(1) in lab("run", "s/one.yaml", "--name", "demo")[2]
    lab("up", "--nodes", "2", "--name", "demo")
    said = lab("run", "s/one.yaml", "--name", "demoo")[2]
    assert golden(2) in said
    assert golden(3) not in lab("run", "s/one.yaml", "--name", "demo")[2]
    assert golden(3) not in lab("run", "s/one.yaml")[2]


def test_a_name_that_is_nearly_that_of_a_cluster_is_told(lab):
    lab("up", "--nodes", "1", "--name", "demo")
    assert lab("down", "--name", "dmo")[1] == golden(1)
    assert golden(2) in lab("status", "--name", "dmo")[1]
    code, _, err = lab("exec", "node0", "--name", "dmo", "true")
    assert (code, golden(3) in err) == (2, True)


def test_a_command_in_a_node_needs_no_dashes(lab):
    lab("up", "--nodes", "1", "--name", "c")
    assert lab("exec", "--name", "c", "node0", "pip", "list", "--name", "x")[0] == 0
    assert lab("exec", "node0", "--name", "c", "pip", "list")[0] == 0


def test_a_script_that_no_node_has_is_named(lab, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch):
    lab("up", "--nodes", "1", "--name", "c")
    monkeypatch.setattr(engine, "execute", lambda *_, **__: 2)
    Path("train.py").touch()
    assert "lab run train.py" in lab("exec", "node0", "--name", "c", "python", "train.py")[2]
    assert lab("exec", "node0", "--name", "c", "python", "other.py")[2] == ""


def test_down_tells_of_an_engine_that_does_not_answer(lab, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch):
    def no_docker() -> None:
        raise EngineUnavailable("no Docker", "start it")

    monkeypatch.setitem(select.OPENERS, "docker", no_docker)
    monkeypatch.setitem(select.OPENERS, "local", lambda: engine)
    unknown = "no Docker; whether cluster c still exists is unknown"
    assert lab("down", "--name", "c") == (3, "", f"lab: {unknown}\n  hint: start it\n")
    assert golden(1) in lab("down", "--all")[2]
    lab("up", "--nodes", "1", "--name", "c")
    code, out, err = lab("down", "--name", "c")
    assert (code, "removed c: 1 node" in out, f"warning: {unknown}" in err) == (0, True, True)


def test_down_is_silent_of_an_engine_that_is_not_on_this_machine_unless_it_was_used(
    lab, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
):
    def no_docker() -> None:
        raise EngineAbsent("no Docker", "start it")

    monkeypatch.setitem(select.OPENERS, "docker", no_docker)
    monkeypatch.setitem(select.OPENERS, "local", lambda: engine)
    assert lab("down", "--name", "c") == (0, "nothing to remove\n", "")
    with ClusterLock("docker", "c").held("lab up"):
        pass
    assert lab("down", "--name", "c")[0] == 3
    assert lab("down", "--all")[0] == 3
    assert lab("down", "--name", "d")[0] == 0


# -- old runs


def test_runs_say_their_size_and_which_go_on(lab):
    lab("run", "s/one.yaml", "--name", "c")
    (run,) = as_json(lab("runs", "--json"))
    files = [path for path in (Path(".lab/runs") / run["run"]).rglob("*") if path.is_file()]
    assert (run["size_bytes"], run["in_progress"]) == (sum(path.stat().st_size for path in files), False)
    assert "size" in lab("runs")[1].splitlines()[0]
    with (Path(".lab/runs") / run["run"] / "logs" / "lock").open() as index:
        fcntl.flock(index, fcntl.LOCK_EX)
        assert as_json(lab("runs", "--json"))[0]["in_progress"] is True
        assert "running  fake" in lab("runs")[1]


def runs_of_the_past(lab, count: int) -> list[str]:
    """Runs that began a day after each other, the last one today; oldest first."""
    for _ in range(count):
        lab("run", "s/one.yaml", "--name", "c")
    names = sorted(path.name for path in Path(".lab/runs").iterdir())
    for days, name in enumerate(reversed(names)):
        plan = Path(".lab/runs") / name / "plan.json"
        os.utime(plan, (time.time() - days * 86400,) * 2)
    return names


@pytest.mark.features
@pytest.mark.parametrize(
    ("words", "gone"),
    [
        (["--keep", "2"], 2),
        (["--keep", "9"], 0),
        (["--keep", "0"], 4),
        (["--older-than", "36h"], 2),
        (["--older-than", "1w"], 0),
        (["--older-than", "12h", "--keep", "3"], 1),
        (["--older-than", "36h", "--keep", "1"], 2),
    ],
)
def test_old_runs_are_removed_by_number_and_age(lab, words: list[str], gone: int):
    names = runs_of_the_past(lab, 4)
    would = as_json(lab("runs", "--prune", *words, "--dry-run", "--json"))
    assert [one["run"] for one in would["removed"]] == names[:gone]
    assert sorted(path.name for path in Path(".lab/runs").iterdir()) == names
    assert as_json(lab("runs", "--prune", *words, "--json")) == would
    assert sorted(path.name for path in Path(".lab/runs").iterdir()) == names[gone:]


@pytest.mark.features
def test_a_run_that_goes_on_is_never_removed(lab):
    first, second = runs_of_the_past(lab, 2)
    with (Path(".lab/runs") / first / "logs" / "lock").open() as index:
        fcntl.flock(index, fcntl.LOCK_EX)
        said = lab("runs", "--prune", "--keep", "0")[1]
    assert said.startswith("removed 1 run, ")
    assert second in said
    assert golden(1, first) in said
    assert [path.name for path in Path(".lab/runs").iterdir()] == [first]


@pytest.mark.features
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--prune"], "--prune needs a limit"),
        (["--keep", "3"], "need --prune"),
        (["--dry-run"], "need --prune"),
        (["--prune", "--keep", "-1"], "a whole number, 0 or more"),
        (["--prune", "--older-than", "7"], "an age such as 30m, 12h, 7d, or 4w"),
    ],
)
def test_pruning_that_says_not_what_is_refused(lab, words: list[str], sentence: str):
    code, _, err = lab("runs", *words)
    assert (code, sentence in err) == (2, True)


# -- lessons


@pytest.mark.features
def test_a_lesson_is_copied_to_be_changed_with_all_that_it_needs(lab):
    assert lab("new", "--from", "resume", "--folder", "mine")[0] == 0
    assert {path.name for path in Path("mine").iterdir()} == {
        "resume.yaml",
        "resume.py",
        "training.py",
        "scenario.schema.json",
    }
    assert as_json(lab("validate", "mine", "--json"))[0]["valid"] is True
    assert golden(1) in lab("new", "--from", "resume", "--folder", "mine")[2]
    assert lab("new", "--from", "reshard", "--folder", "mine")[0] == 0, "a module that both need"
    Path("mine/training.py").write_text("changed")
    assert golden(2) in lab("new", "--from", "loading_memory", "--folder", "mine")[2]


@pytest.mark.features
def test_a_copy_of_a_lesson_has_a_name_of_its_own(lab):
    assert lab("new", "my-scatter", "--from", "scatter")[0] == 0
    assert Path("my_scatter.yaml").read_text().startswith(golden(1))
    assert as_json(lab("run", "my_scatter.yaml", "--dry-run", "--json"))["scenario"] == "my-scatter"


@pytest.mark.features
def test_a_lesson_can_be_run_from_any_folder_and_one_of_ones_own_comes_first(lab):
    library = as_json(lab("scenarios", "--json"))
    assert {"scatter", "all_reduce"} <= {lesson["name"] for lesson in library}
    assert Path(as_json(lab("run", "@scatter", "--dry-run", "--json"))["script"]).is_absolute()
    assert as_json(lab("run", "@ddp-story", "--dry-run", "--json"))["script"].endswith("/ddp/story.py")
    Path("scenarios").mkdir()
    assert lab("new", "--from", "scatter")[1].startswith(golden(1))
    own = as_json(lab("run", "@scatter", "--dry-run", "--json"))["script"]
    assert own == str(Path("scenarios/scatter.py").absolute())
    rows = lab("scenarios")[1].splitlines()
    assert sum(row.startswith(("@", "scenarios/")) for row in rows) == len(library)
    assert rows[1].startswith("scenarios/scatter.yaml ")
    assert rows[2].startswith("@rank_table ")


@pytest.mark.features
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "@scater"], "there is no lesson 'scater' (did you mean 'scatter'?)"),
        (["run", "scater"], "hint: did you mean the lesson @scatter?"),
        (["run", "@scatter", "--timeout", "5", "min"], "hint: write a quantity without a space, such as 5m"),
        (["learn", "scater"], "there is no lesson 'scater' (did you mean 'scatter'?)"),
        (["new", "--from", "scater"], "there is no lesson 'scater' (did you mean 'scatter'?)"),
        (["validate", "@scater"], "there is no lesson 'scater' (did you mean 'scatter'?)"),
        (["new"], "a new scenario needs a name, or a lesson to copy"),
    ],
)
def test_a_lesson_that_is_not_there_is_refused(lab, words: list[str], sentence: str):
    code, _, err = lab(*words)
    assert (code, sentence in err) == (2, True), err


@pytest.mark.features
def test_every_file_of_a_record_is_in_the_list_that_lies_in_it(lab):
    Path("s/verify.py").write_text("def ok(results):\n    return True\n")
    Path("s/two.yaml").write_text("script: train.py\nnodes: 2\nexpect: {check: 'verify.py:ok'}\n")
    lab("run", "s/two.yaml", "--name", "c")
    assert lab("report")[0] == 0
    (record,) = Path(".lab/runs").iterdir()
    listed = [name.replace("<N>", "*") for name in {**FILES, **all_entries("record_files")}]
    names = [str(path.relative_to(record)) for path in record.rglob("*") if path.is_file()]
    assert [name for name in names if not any(fnmatch(name, pattern) for pattern in listed)] == []
    assert {"README.txt", "report.html", "logs/index.jsonl", "train.py"} <= set(names)
    assert all(f"\n{name}\n" in (record / "README.txt").read_text() for name in FILES)


@pytest.mark.features
@pytest.mark.parametrize("words", [("a", "b"), ("node0:a", "node1:b"), ("0:a", "1:")])
def test_cp_copies_between_here_and_a_node_only(lab: Any, words: tuple[str, str]) -> None:
    code, _, err = lab("cp", *words)
    assert code == 2
    assert golden(1, words[0], words[1]) in err


# -- watch


@pytest.mark.features
def test_watch_says_that_no_run_goes_on(capsys: pytest.CaptureFixture[str]):
    assert main(["watch"]) == 1
    assert golden(1) in capsys.readouterr().err
    assert main(["watch", "--name", "c"]) == 1
    assert golden(2) in capsys.readouterr().err


@pytest.mark.features
def test_watch_steps_through_runs_of_its_own_only(capsys: pytest.CaptureFixture[str]):
    assert main(["watch", "--step"]) == 2
    assert golden(1) in capsys.readouterr().err
