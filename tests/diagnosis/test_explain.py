"""Explanations of whole records: complete, without a trace, damaged, empty; as text and as JSON."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from lab.cli.main import main
from lab.diagnosis.explain import Explanation, explain_run
from lab.diagnosis.finding import Side
from lab.record.layout import EVENTS, PLAN, RESULT, TRACE, rank_trace
from lab.record.read import Record
from lab.report.style import Style
from lab.report.verdict import explanation_text
from tests.diagnosis.facts import exited, hang, raised, stack, told_facts, write_events
from tests.golden import golden
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


def result(verdict: str, culprit: int | None = None, **more: Any) -> dict[str, Any]:
    named = None if culprit is None else {"rank": culprit, "node": f"node{culprit}", "error": "x", "traceback": ""}
    return {"verdict": verdict, "reason": "the reason", "scenario": "train", "culprit": named, "ranks": [], **more}


@pytest.fixture
def hung(tmp_path: Path) -> TraceMaker:
    made = TraceMaker(tmp_path / "run", 3)
    for rank in range(3):
        made.call(rank, "all_reduce", 1, 2, [[1.0]], [[3.0]], at="train.py:9")
    for rank in (0, 1):
        made.call(rank, "all_reduce", 1000, None, [[1.0]], at="train.py:41")
    hang(made, stack(0, 41, "all_reduce"), stack(1, 41, "all_reduce"), stack(2, 37))
    return made


@pytest.mark.features
def test_a_hang_is_explained_with_its_stacks_and_nothing_is_missing(hung: TraceMaker) -> None:
    explanation = explain_run(hung.record(stop=False, result=result("hung", 2)))
    assert (explanation.verdict, explanation.sentence, explanation.scenario) == ("hung", "the reason", "train")
    assert [finding.kind for finding in explanation.findings] == ["never_entered", "account"]
    assert list(explanation.stacks) == [2, 0, 1]
    assert explanation.problems == ()


@pytest.mark.features
def test_a_run_that_passed_is_accounted_for(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    for rank in (0, 1):
        made.call(rank, "all_reduce", 1, 2, [[1.0] * 4], [[2.0] * 4], at="train.py:9")
        made.call(rank, "broadcast", 2, 3, [[1.0] * 256], at="train.py:10", root=0)
    made.call(0, "send", 4, 5, [[1.0]], peer=1, tag=0)
    made.call(1, "recv", 4, 5, (), [[1.0]], peer=0, tag=0)
    write_events(made, exited(0), exited(1))
    [account] = explain_run(made.record(result=result("passed"))).findings
    assert told_facts(account) == {"collectives": 2, "messages": 1, "brought_bytes": 2084}


@pytest.mark.features
def test_an_exit_code_that_was_expected_is_no_failure(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    write_events(made, exited(0), exited(1, 3))
    explanation = explain_run(made.record(result=result("passed")))
    assert [finding.kind for finding in explanation.findings] == ["account"]


def test_without_a_trace_results_stacks_and_events_still_explain(hung: TraceMaker) -> None:
    record = hung.record(result=result("hung", 2))
    for rank in range(3):
        (record.path / TRACE / rank_trace(rank)).unlink()
    explanation = explain_run(record)
    [found] = explanation.findings
    assert (found.kind, found.ranks, found.others) == ("never_entered", (2,), (0, 1))
    assert told_facts(found) == {
        "did": [
            {"rank": 0, "what": "stood", "stood": {"place": {"file": "train.py", "line": 41, "call": "all_reduce"}}},
            {"rank": 1, "what": "stood", "stood": {"place": {"file": "train.py", "line": 41, "call": "all_reduce"}}},
            {"rank": 2, "what": "stood", "stood": {"place": {"file": "train.py", "line": 37, "call": ""}}},
        ]
    }
    assert explanation.problems == (golden(1),)


def test_without_a_trace_the_culprit_of_the_verdict_is_told_with_where_it_was(hung: TraceMaker) -> None:
    record = hung.record(result=result("hung", 2))
    hang(hung, stack(0, 41, "all_reduce"), stack(1, 41, "all_reduce"), stack(2, 43, "barrier"))
    for rank in range(3):
        (record.path / TRACE / rank_trace(rank)).unlink()
    [found] = explain_run(record).findings
    assert (found.kind, found.ranks, found.lines) == ("waiting", (2,), ("train.py:43", "train.py:41"))
    assert told_facts(found) == {
        "did": [
            {"rank": 0, "what": "stood", "stood": {"place": {"file": "train.py", "line": 41, "call": "all_reduce"}}},
            {"rank": 1, "what": "stood", "stood": {"place": {"file": "train.py", "line": 41, "call": "all_reduce"}}},
            {"rank": 2, "what": "stood", "stood": {"place": {"file": "train.py", "line": 43, "call": "barrier"}}},
        ]
    }


def test_without_a_trace_a_failure_is_explained_by_who_raised(tmp_path: Path) -> None:
    record = TraceMaker(tmp_path / "run", 2).record(result=result("failed", 1))
    made = TraceMaker(tmp_path / "other", 2)
    write_events(made, raised(1, "ValueError: x", 7), exited(0, None, signal="SIGKILL", stopped=True))
    (record.path / EVENTS).write_bytes((made.path / EVENTS).read_bytes())
    for rank in (0, 1):
        (record.path / TRACE / rank_trace(rank)).unlink()
    [found] = explain_run(record).findings
    assert told_facts(found) == {
        "what": "failed",
        "node": "node1",
        "end": {"how": "raised", "error": "ValueError: x", "place": {"file": "train.py", "line": 7, "call": ""}},
    }


def test_without_events_the_result_tells_how_ranks_ended(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    traceback = 'Traceback (most recent call last):\n  File "train.py", line 7, in main\nValueError: x\n'
    ranks = [
        {"rank": 0, "node": "node0", "exit_code": None, "stopped": True, "duration_s": 1.0},
        {
            "rank": 1,
            "node": "node1",
            "exit_code": 1,
            "error": "ValueError: x",
            "traceback": traceback,
            "duration_s": 1.0,
        },
    ]
    explanation = explain_run(made.record(result=result("failed", 1, ranks=ranks)))
    assert told_facts(explanation.findings[0]) == {
        "what": "failed",
        "node": "node1",
        "end": {"how": "raised", "error": "ValueError: x", "place": {"file": "train.py", "line": 7, "call": ""}},
        "progress": {"calls": 0},
    }
    assert golden(1) in explanation.problems[0]


def test_a_record_cut_short_is_explained_as_far_as_it_goes(hung: TraceMaker) -> None:
    record = hung.record(stop=False)
    path = record.path / TRACE / rank_trace(1)
    path.write_bytes(path.read_bytes()[:-40])
    (record.path / TRACE / rank_trace(0)).unlink()
    explanation = explain_run(record)
    assert explanation.verdict == "error"
    assert explanation.findings
    assert any(golden(1) in problem for problem in explanation.problems)
    assert any("cannot be read" in problem for problem in explanation.problems)
    assert explanation.problems[0].startswith(golden(2))


@pytest.mark.parametrize("seed", range(40))
def test_no_damage_to_a_record_stops_its_explanation(hung: TraceMaker, seed: int) -> None:
    chance = random.Random(seed)
    record = hung.record(stop=False, result=result("hung", 2))
    files = [EVENTS, PLAN, RESULT, *(f"{TRACE}/{rank_trace(rank)}" for rank in range(3))]
    for name in chance.sample(files, chance.randint(1, 4)):
        path = record.path / name
        data = bytearray(path.read_bytes())
        if chance.random() < 0.2:
            path.unlink()
            continue
        if chance.random() < 0.5:
            del data[chance.randrange(len(data)) :]
        for _ in range(chance.randint(1, 20)):
            if data:
                data[chance.randrange(len(data))] = chance.choice(b'0{}[],:"x\n9-')
        path.write_bytes(bytes(data))
    explanation = explain_run(record)
    assert json.loads(json.dumps(explanation.to_json()))["run"] == "run"
    assert explanation_text(explanation, Style(colour=True))


def test_an_empty_folder_is_explained_by_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "run" / "logs").mkdir(parents=True)
    explanation = explain_run(Record(path=tmp_path / "run"))
    assert explanation.findings == ()
    assert len(explanation.problems) == 4


# -- what a person and a program see


@pytest.mark.features
def test_the_text_has_80_columns_and_numbers_its_findings(hung: TraceMaker) -> None:
    explanation = explain_run(hung.record(stop=False, result=result("hung", 2)))
    text = explanation_text(explanation, Style(colour=False))
    assert max(map(len, text.splitlines())) <= 80
    assert golden(1) in text
    assert "\n 2. Ranks 0-2 entered" in text
    assert text.index("\nranks 0 and 1\n") > text.index("\nrank 2\n")


@pytest.mark.features
def test_ranks_and_lines_are_painted_and_nothing_else_changes() -> None:
    odd, other = Side(ranks=(1,), what="broadcast", lines=("train.py:22",)), Side(ranks=(0,), what="all_reduce")
    from lab.features.mismatches.findings import Mismatch

    finding = Mismatch(number=1, deviating_sides=(odd,), sides=(other,), ranks=(1,))
    explanation = Explanation(run="r", scenario="s", verdict="hung", sentence="why", findings=(finding,))
    painted = explanation_text(explanation, Style(colour=True))
    assert "\x1b[33mRank 1\x1b[0m" in painted
    assert "\x1b[1mtrain.py:22\x1b[0m" in painted
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == explanation_text(explanation, Style(colour=False))


def test_the_verb_prints_text_and_json(
    hung: TraceMaker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    path = str(hung.record(stop=False, result=result("hung", 2)).path)
    assert main(["explain", path]) == 0
    assert golden(1) in capsys.readouterr().out
    assert main(["explain", path, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["verdict"], data["findings"][0]["kind"], data["findings"][0]["ranks"]) == (
        "hung",
        "never_entered",
        [2],
    )
    assert set(data["stacks"]) == {"0", "1", "2"}


def test_a_run_that_is_not_there_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["explain", "nowhere"]) != 0
    said = capsys.readouterr()
    assert said.out == ""
    assert golden(1) in said.err
