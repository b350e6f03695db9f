"""`lab test`, on an engine without nodes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from lab.engine import select
from tests.fake_engine import FakeEngine, exits
from tests.golden import golden

Lab = Callable[..., tuple[int, str, str]]


@pytest.fixture
def engine(tmp_path: Path, own_homes: None, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """The engine that the verb finds; a second rank fails."""
    engine = FakeEngine({1: [exits(1)]})
    monkeypatch.setitem(select.OPENERS, "docker", lambda: engine)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "train.py").write_text("print()\n")
    (tmp_path / "s" / "one.yaml").write_text("script: train.py\nnodes: 1\n")
    (tmp_path / "s" / "two.yaml").write_text("script: train.py\nnodes: 2\n")
    (tmp_path / "s" / "third.yaml").write_text("script: train.py\nnodes: 3\nexpect: {culprit: 2}\n")
    return engine


def test_a_folder_is_run_and_the_worst_is_the_exit_code(lab: Lab):
    code, out, err = lab("test", "s/one.yaml", "s/two.yaml", "-j", "1")
    assert code == 1
    assert out.splitlines()[0] == "1 cluster (-j 1)"
    assert "[1/2] ✔ passed  one  1 rank" in out
    assert golden(1) in out
    assert "1 passed, 1 failed in" in out
    assert err == ""


def test_json_is_a_line_for_each_case_and_then_a_summary(lab: Lab):
    code, out, err = lab("test", "s", "--json", "--nodes", "1")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [line["kind"] for line in lines] == ["outcome"] * 3 + ["summary"]
    assert {line["id"]: line["status"] for line in lines[:3]} == {
        "one[nodes=1]": "passed", "two[nodes=1]": "passed", "third[nodes=1]": "skipped",
    }  # fmt: skip
    assert lines[3]["counts"] == {"passed": 2, "skipped": 1}
    assert Path(next(line["record"] for line in lines if line.get("record"))).is_dir()
    assert "[3/3]" in err


def test_files_for_machines_and_pages_are_written(lab: Lab):
    files = {"--junit": "out/j.xml", "--markdown": "out/m.md", "--html": "out/page.html"}
    code, _, err = lab("test", "s/one.yaml", "s/two.yaml", *(word for pair in files.items() for word in pair))
    assert code == 1
    assert [line for line in err.splitlines() if "written" in line] == [f"  written: {path}" for path in files.values()]
    assert [one.get("name") for one in ET.parse("out/j.xml").getroot().iter("testcase")] == ["one", "two"]
    assert Path("out/m.md").read_text().startswith("## ✔ 1 passed, ✘ 1 failed\n")
    page = Path("out/page.html").read_text()
    assert ">one</a>" in page
    assert "left no record" not in page


def test_runs_are_held_against_earlier_ones_but_not_against_themselves(lab: Lab):
    assert lab("test", "s/one.yaml", "--runs", "then")[0] == 0
    code, out, _ = lab("test", "s/one.yaml", "s/two.yaml", "--baseline", "then", "--json")
    baseline = json.loads(out.splitlines()[-2])
    assert (code, baseline["kind"], [case["name"] for case in baseline["cases"]]) == (1, "baseline", ["one on 1 x 1"])
    assert baseline["cases"][0]["worse"] is False
    code, out, _ = lab("test", "s/one.yaml", "--baseline", "then", "--slower", "5%")
    assert golden(1) in out
    code, _, err = lab("test", "s/one.yaml", "--baseline", "nowhere")
    assert code != 0
    assert golden(2) in err


def test_what_is_tried_again_is_told_on_the_page(lab: Lab, engine: FakeEngine):
    connects = []

    def mend(call: str) -> None:
        connects.append(call) if call == "connect" else None
        engine.acts = {} if len(connects) > 1 else engine.acts

    engine.failure = mend
    code, out, _ = lab("test", "s/two.yaml", "--retries", "1", "--html", "page.html")
    assert code == 0
    assert "✘ failed  two  " in out
    assert "attempt 2 of 2 follows" in out
    assert "1 flaky in" in out
    page = Path("page.html").read_text()
    assert golden(1) in page
    assert "two, attempt 2" in page


def test_the_list_says_what_would_run_and_what_cannot(lab: Lab, engine: FakeEngine):
    code, out, _ = lab("test", "s", "--list", "--nodes", "1,3", "-k", "third or one")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == [
        "one[nodes=1]", "one[nodes=3]", "third[nodes=1]", "third[nodes=3]",
    ]  # fmt: skip
    assert golden(1) in out
    assert engine.calls == []
    found = json.loads(lab("test", "s/one.yaml", "--list", "--json", "--seed", "4")[1])
    assert (found[0]["id"], found[0]["nodes"], found[0]["seed"]) == ("one", 1, 4)
    script = json.loads(lab("test", "s/train.py", "--list", "--json")[1])
    assert script[0]["nodes"] is None, "a cluster that is up would say"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--backend", "gloo,nvlink"], "the lab has no backend 'nvlink'; allowed: gloo, mpi, and nccl"),
        (["--nodes", "2,x"], "found 'x'; allowed: a whole number, 1 or more"),
        (["--nodes", "2,2"], "--nodes names 2 more than once"),
        (["-k", "nothing"], "-k 'nothing' matches none of 1 cases"),
        (["-k", "("], "-k '(' is invalid"),
        (["--retries", "-1"], "allowed: a whole number, 0 or more"),
        (["-x", "--maxfail", "2"], "not allowed with"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(lab: Lab, words: list[str], sentence: str):
    code, _, err = lab("test", "s/one.yaml", *words)
    assert code == 2
    assert sentence in err


def test_a_scenario_that_is_not_valid_is_an_error_and_the_others_run(lab: Lab, engine: FakeEngine):
    Path("s/bad.yaml").write_text("script: train.py\nnodez: 2\n")
    code, out, _ = lab("test", "s", "--json", "-k", "bad or one")
    outcomes = {one["id"]: one for one in map(json.loads, out.splitlines()[:2])}
    assert {name: one["status"] for name, one in outcomes.items()} == {"bad": "error", "one": "passed"}
    assert (code, "bad.yaml:2:1" in outcomes["bad"]["reason"]) == (2, True)

    code, _, err = lab("test", "s/bad.yaml")
    assert (code, "bad.yaml:2:1" in err) == (2, True)
