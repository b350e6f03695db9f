"""Programs that gloo lets pass: under --strict-order wrong ones fail with the right diagnosis, and right ones pass."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from lab import Cluster
from lab.diagnosis.explain import explain_run
from lab.errors import LabError
from lab.features.faults.fault import beyond_engine
from lab.features.mpi.backends import find_lacking
from lab.features.strict_order.on_node.rules import VARIABLE
from lab.record.read import Record
from lab.spec.load import find_scenarios, load_scenario, scenario_from_script
from tests.diagnosis.marking import mark
from tests.diagnosis.programs import read_program
from tests.diagnosis.score import ask
from tests.engines.conftest import written

pytestmark = pytest.mark.half

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parents[1] / "features" / "strict_order"
WRONG = sorted((PROGRAMS / "wrong").glob("*.py"))
RIGHT = sorted((PROGRAMS / "right").glob("*.py"))
ORDERS = {
    "barrier_in_flight_across_groups",
    "batch_and_collective_cross",
    "collective_in_flight_before_a_message",
    "gradients_reduced_while_stages_talk",
    "groups_cross_in_async_calls",
    "message_in_flight_before_a_collective",
    "reduce_then_send",
    "ring_of_three_groups",
}
"""Those whose order of calls the trace of a passed run shows."""
UNRECEIVED = {"batch_lacks_a_receive", "isend_never_received"}
STRICT = {VARIABLE: "1"}


@pytest.mark.local_first
@pytest.mark.sample(8)  # each is one program of a kind that others show too
@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_a_program_that_passes_by_luck_fails_with_the_right_diagnosis(
    path: Path, cluster: Cluster, tmp_path: Path
) -> None:
    program = read_program(path)
    strict = ask(program, cluster, tmp_path, STRICT)
    marked = mark(program, strict)
    assert marked.right, marked
    assert strict.verdict == ("hung" if program.kinds & {"deadlock", "unmatched"} else "failed")


@pytest.mark.local_first
@pytest.mark.sample(8)  # each is one program of a kind that others show too
@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_its_passed_run_shows_the_order_that_is_luck(path: Path, cluster: Cluster, tmp_path: Path) -> None:
    program = read_program(path)
    usual = ask(replace(program, timeout_s=30.0), cluster, tmp_path)
    assert usual.verdict == "passed", usual.reason
    found = [finding for finding in usual.findings if finding.kind == "luck"]
    assert [one.how for one in found] == ["order"] * (path.stem in ORDERS) + ["unreceived"] * (path.stem in UNRECEIVED)
    for one in found:
        assert any(line in one.lines for line in program.causes)
        assert re.fullmatch(rf"lab run --strict-order --nodes \d --timeout \d+s \S+/{path.name}", one.command)


@pytest.mark.trains
@pytest.mark.local_first
@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_a_right_program_passes_in_strict_order_too(path: Path, cluster: Cluster, tmp_path: Path) -> None:
    program = read_program(path)
    for env in ({}, STRICT):
        marked = mark(program, ask(program, cluster, tmp_path, env))
        assert marked.right, marked


FIRST_OF_ANY = """import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 0:
    dist.recv(torch.zeros(1))
    dist.recv(torch.zeros(1), 2)
elif rank:
    time.sleep(rank - 1)
    dist.send(torch.ones(1), 0)
dist.barrier()
"""
GIVES_UP = """import datetime, torch, torch.distributed as dist
dist.init_process_group("gloo")
pair = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=1))
if dist.get_rank() == 0:
    try:
        dist.all_reduce(torch.ones(1), group=pair)
    except RuntimeError:
        pass
dist.barrier()
"""


@pytest.mark.local_first
@pytest.mark.parametrize(
    ("text", "how", "lines"),
    [(FIRST_OF_ANY, "any_source", (5, 9, 6)), (GIVES_UP, "timeout", (6, 9))],
    ids=["any_source", "timeout"],
)
def test_the_command_of_a_finding_makes_the_run_fail(
    text: str, how: str, lines: tuple[int, ...], cluster: Cluster, tmp_path: Path
) -> None:
    script = written(tmp_path / "lucky", text)
    result = cluster.run(script, nodes=3, runs=tmp_path / "runs")
    assert (result.verdict, result.path is not None) == ("passed", True), result.reason
    (found,) = [one for one in explain_run(Record(path=result.path)).findings if one.kind == "luck"]
    assert (found.how, found.lines) == (how, tuple(f"{script.name}:{line}" for line in lines))
    words = shlex.split(found.command)
    assert words[:3] == ["lab", "run", "--strict-order"]
    assert words[-1] == str(script)
    again = replace(scenario_from_script(script, timeout_s=20.0), env=STRICT)
    result = cluster.run(again, nodes=3, runs=tmp_path / "runs")
    assert result.verdict == "failed", result.reason


@pytest.mark.local_first
def test_a_rejected_call_is_found_with_its_rule_and_both_lines(cluster: Cluster, tmp_path: Path) -> None:
    answer = ask(read_program(PROGRAMS / "wrong" / "tags_swapped.py"), cluster, tmp_path, STRICT)
    first = answer.findings[0]
    assert (first.kind, first.rule, first.others) == ("rejected", "tag", (0, 1))
    assert first.lines == ("tags_swapped.py:12", "tags_swapped.py:18")


@pytest.mark.local_first
def test_a_hang_shows_which_calls_waited_behind_which(cluster: Cluster, tmp_path: Path) -> None:
    program = read_program(PROGRAMS / "wrong" / "groups_cross_in_async_calls.py")
    (held,) = [one for one in ask(program, cluster, tmp_path, STRICT).findings if one.kind == "held_back"]
    name = "groups_cross_in_async_calls.py"
    assert [(call.rank, call.source) for call in held.held] == [(0, f"{name}:14"), (1, f"{name}:17")]
    assert [(call.rank, call.source) for call in held.behind] == [(0, f"{name}:13"), (1, f"{name}:16")]


@pytest.mark.local_first
def test_the_key_of_a_scenario_makes_its_run_strict(cluster: Cluster, tmp_path: Path) -> None:
    script = written(tmp_path / "strict", (PROGRAMS / "wrong" / "tags_swapped.py").read_text())
    scenario = replace(scenario_from_script(script), extra={"strict_order": True})
    result = cluster.run(scenario, nodes=2, timeout_s=30.0)
    assert result.verdict == "failed"
    assert "StrictOrderError" in result.reason


@pytest.mark.local_first
def test_a_call_in_flight_at_the_end_of_a_failed_script_does_not_keep_it(cluster: Cluster, tmp_path: Path) -> None:
    script = written(
        tmp_path / "fails",
        "import torch, torch.distributed as dist\n"
        'dist.init_process_group("gloo")\n'
        "if dist.get_rank() == 0:\n"
        "    kept = dist.isend(torch.ones(1), 1)\n"
        '    raise ValueError("no data")\n'
        "dist.barrier()\n",
    )
    result = cluster.run(replace(scenario_from_script(script), env=STRICT), nodes=2, timeout_s=30.0)
    assert (result.verdict, result.culprit.rank if result.culprit else None) == ("failed", 0)
    assert "no data" in result.reason


@pytest.mark.long
@pytest.mark.local_first
@pytest.mark.timeout(3600)  # two runs of each lesson, one after the other
def test_all_lessons_pass_but_those_that_the_page_names(cluster: Cluster, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "strict-order.md").read_text(encoding="utf-8").partition("## Lessons that do not pass")[2]
    named = set(re.findall(r"[\w-]{4,}", page.partition(": ")[2]))
    failed, lucky = set[str](), dict[str, list[str]]()
    for path in find_scenarios([ROOT / "scenarios"]):
        scenario = load_scenario(path)
        if find_lacking(scenario, "gloo") or beyond_engine(scenario, cluster.engine.name) or scenario.image:
            named.discard(scenario.name)
            continue
        usual = replace(scenario, env={**scenario.env, VARIABLE: "0"})
        for one in (usual, replace(scenario, env={**scenario.env, VARIABLE: "1"})):
            try:
                limit_s = 20.0 if one is not usual and scenario.name in named else None  # two of them hang
                result = cluster.run(one, runs=tmp_path / "runs", timeout_s=limit_s)
            except LabError:  # too large for this cluster, or for this machine
                continue
            if one is not usual and not result.passed:
                failed.add(scenario.name)
            elif one is usual and result.path is not None and "strict_order" not in scenario.extra:
                found = explain_run(Record(path=result.path)).findings
                lucky |= {scenario.name: [each.sentence for each in found if each.kind == "luck"]}
    assert failed == named
    assert {name for name, sentences in lucky.items() if sentences} == {"monitored_barrier"}  # which is about that
