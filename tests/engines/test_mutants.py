"""Each kind of mutant really does what it says, on real ranks; and the diagnosis of 30 mutants with a fixed seed."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from lab import Cluster, Result
from lab.cli.main import main
from lab.diagnosis.evidence import read_evidence
from lab.features.mutants.candidates import Candidates, read_events
from lab.features.mutants.mutate import html_page, junit_xml, try_scenario, with_mutant
from lab.features.mutants.on_node.mutant import KINDS, OBSERVE
from lab.record.read import Record
from lab.spec.load import scenario_from_script
from lab.trace.model import Call, Trace
from tests.diagnosis import mutants
from tests.diagnosis.truth import RIGHT
from tests.engines.conftest import SCRIPTS, written

LOCAL = pytest.mark.parametrize("engine", ["local"], indirect=True)
CHANGEABLE = SCRIPTS / "changeable.py"
TIMEOUT_S = 6.0


@dataclass(frozen=True)
class Ran:
    """A run with a mutant."""

    result: Result
    trace: Trace

    def calls(self, rank: int, op: str) -> list[Call]:
        return [call for call in self.trace.ranks[rank].calls if call.op == op and not call.phase and call.group == "0"]

    def note(self, rank: int, name: str) -> Any:
        return self.result.ranks[rank].notes.get(name)


def run_mutant(text: str, cluster: Cluster, folder: Path, script: Path = CHANGEABLE) -> Ran:
    scenario = with_mutant(scenario_from_script(script), text, 60.0 if text == OBSERVE else TIMEOUT_S)
    result = cluster.run(scenario, nodes=3, runs=folder)
    assert result.path is not None
    return Ran(result, read_evidence(Record(path=result.path)).trace)


def ops(ran: Ran, rank: int) -> list[str]:
    return [call.op for call in ran.trace.ranks[rank].calls]


SHOWS: dict[str, Callable[[Ran], bool]] = {
    "skip all_reduce rank=1 nth=2": lambda ran: ops(ran, 1)[:2] == ["all_reduce", "broadcast"],
    "skip step rank=1 nth=1": lambda ran: ran.note(1, "weight") != ran.note(0, "weight"),
    "repeat broadcast rank=1 nth=1": lambda ran: len(ran.calls(1, "broadcast")) == 2,
    "swap all_reduce rank=all nth=2": lambda ran: (
        ran.result.passed and ops(ran, 1)[:3] == ["all_reduce", "broadcast", "all_reduce"]
    ),
    "op broadcast rank=1 nth=1 to=all_reduce": lambda ran: (
        not ran.calls(1, "broadcast") and ran.calls(1, "all_reduce")[2].inputs[0].dtype == "int64"
    ),
    "reduction all_reduce rank=1 nth=1 to=MAX": lambda ran: ran.calls(1, "all_reduce")[0].reduce_op == "MAX",
    "root broadcast rank=1 nth=1 to=2": lambda ran: ran.calls(1, "broadcast")[0].root == 2,
    "group all_reduce rank=1 nth=1 to=GROUP": lambda ran: ran.trace.ranks[1].calls[0].group != "0",
    "peer send rank=0 nth=1 to=2": lambda ran: ran.calls(0, "send")[0].peer == 2,
    "tag send rank=0 nth=1 to=12": lambda ran: ran.calls(0, "send")[0].tag == 12,
    "shape all_reduce rank=1 nth=1 to=more": lambda ran: ran.calls(1, "all_reduce")[0].inputs[0].shape == (3,),
    "shape all_reduce rank=1 nth=1 to=less": lambda ran: ran.calls(1, "all_reduce")[0].inputs[0].shape == (1,),
    "dtype all_reduce rank=1 nth=1 to=float64": lambda ran: ran.calls(1, "all_reduce")[0].inputs[0].dtype == "float64",
    "split all_to_all_single rank=1 nth=1": lambda ran: (
        ran.calls(1, "all_to_all_single")[0].splits == ((2, 2, 2), (1, 3, 2))
    ),
    "nan all_reduce rank=1 nth=1": lambda ran: ran.note(0, "sum")[0] == "nan",
    "change all_reduce rank=1 nth=3": lambda ran: any(wait.changed is not None for wait in ran.trace.ranks[1].waits),
    "unwaited all_reduce rank=1 nth=3": lambda ran: len(ran.trace.ranks[1].waits) < len(ran.trace.ranks[0].waits),
    "raise all_reduce rank=1 nth=2": lambda ran: "changed on purpose" in ran.result.ranks[1].error,
    "exit all_reduce rank=1 nth=2 to=1": lambda ran: ran.result.ranks[1].exit_code == 1,
    "exit backward rank=1 nth=1 to=0": lambda ran: ran.result.ranks[1].exit_code == 0 and not ran.note(1, "seen"),
    "abort all_reduce rank=1 nth=2": lambda ran: ran.result.ranks[1].signal == "SIGABRT",
    "segfault all_reduce rank=1 nth=2": lambda ran: ran.result.ranks[1].signal == "SIGSEGV",
    "hang all_reduce rank=1 nth=2": lambda ran: ran.result.verdict == "hung" and len(ran.calls(1, "all_reduce")) == 1,
    "hang_gil all_reduce rank=1 nth=2": lambda ran: (
        ran.result.verdict == "hung" and len(ran.calls(1, "all_reduce")) == 1
    ),
    "sleep all_reduce rank=1 nth=2 to=1": lambda ran: (
        ran.result.passed and ran.calls(1, "all_reduce")[1].begin - ran.calls(0, "all_reduce")[1].begin > 0.8
    ),
    "lr step rank=1 nth=1 to=10": lambda ran: ran.note(1, "weight") != ran.note(0, "weight"),
    "no_sync forward rank=1 nth=1": lambda ran: (
        [
            next(phase.synchronised for phase in ran.trace.ranks[rank].phases if phase.name == "forward")
            for rank in (0, 1)
        ]
        == [True, False]
    ),
    "drop batch rank=1 nth=1": lambda ran: ran.note(0, "seen") is None or len(ran.trace.ranks[1].calls) < 12,
    "data sampler rank=all nth=1": lambda ran: ran.note(1, "seen") == ran.note(0, "seen") == [0.0, 3.0, 6.0, 9.0],
    "world init_process_group rank=1 nth=1 to=4": lambda ran: ran.trace.ranks[1].stores[0].world_size == 4,
    "address init_process_group rank=1 nth=1": lambda ran: (
        ran.trace.ranks[1].stores[0].port == ran.trace.ranks[0].stores[0].port + 1
    ),
}


def test_each_kind_is_shown_and_has_a_truth() -> None:
    assert {text.split()[0] for text in SHOWS} == {*KINDS} == {*RIGHT}


@pytest.mark.sample(4)  # the score of mutants has all kinds
@LOCAL
@pytest.mark.trains
@pytest.mark.parametrize("text", SHOWS)
def test_a_mutant_does_what_it_says(text: str, cluster: Cluster, tmp_path: Path) -> None:
    if "GROUP" in text:
        groups = run_mutant(OBSERVE, cluster, tmp_path).trace.groups
        text = text.replace("GROUP", next(name for name in groups if name != "0"))
    ran = run_mutant(text, cluster, tmp_path)
    assert SHOWS[text if text in SHOWS else "group all_reduce rank=1 nth=1 to=GROUP"](ran), (
        ran.result.reason,
        ops(ran, 0),
        ops(ran, 1),
    )


@LOCAL
@pytest.mark.trains
def test_a_mutant_that_changes_nothing_is_reported(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["run", str(CHANGEABLE), "--engine", "local", "--name", cluster.name, "--nodes", "3", "--quiet", "--mutant"]
    main([*words, "skip all_reduce rank=9 nth=1"])
    assert "warning: the mutant changed nothing" in capsys.readouterr().err
    main([*words, "sleep all_reduce rank=1 nth=1 to=0.01"])
    assert "warning" not in capsys.readouterr().err


@LOCAL
@pytest.mark.trains
def test_a_run_that_observes_changes_nothing_and_draws_the_same_mutants_again(cluster: Cluster, tmp_path: Path) -> None:
    from random import Random

    ran = run_mutant(OBSERVE, cluster, tmp_path)
    assert ran.result.passed, ran.result.reason
    assert ran.note(0, "sum") == [9.0, 9.0]
    assert ran.result.path is not None
    events = read_events(Record(path=ran.result.path))
    drawn = [[Candidates(events).draw(Random(seed)) for seed in range(50)] for _ in range(2)]
    assert drawn[0] == drawn[1]
    kinds = {*Candidates(events).by_kind}
    assert kinds >= {"skip", "swap", "peer", "split", "unwaited", "no_sync", "drop", "data", "lr", "world"}


CHECKED = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total, top = torch.tensor([float(dist.get_rank())]), torch.tensor([1.0])
dist.all_reduce(total)
dist.all_reduce(top, op=dist.ReduceOp.MAX)
assert total.item() == 3.0
dist.destroy_process_group()
"""


@pytest.mark.half
def test_checks_notice_what_they_check_and_nothing_else(tmp_path: Path) -> None:
    script = scenario_from_script(written(tmp_path / "checked", CHECKED))
    report = try_scenario(replace(script, nodes=3), 40, 0, ["nan"], "local", jobs=2)
    fates = {(one.at, one.mutant.ranks): one.fate for one in report.tried}
    assert fates == {
        (f"main.py:{line}", (rank,)): fate for line, fate in ((5, "caught"), (6, "survived")) for rank in range(3)
    }
    assert report.score == 50
    assert 'failures="3"' in junit_xml(report)
    assert "rank 1 passes a NaN to its 2nd all_reduce at main.py:6" in html_page(report)


@LOCAL
@pytest.mark.long  # grading of submissions has the same expectation, on a strict cluster
@pytest.mark.timeout(600)
def test_a_scenario_can_expect_that_its_checks_notice_mutants(cluster: Cluster, tmp_path: Path) -> None:
    script = scenario_from_script(written(tmp_path / "checked", CHECKED))
    expecting = replace(script, expect=replace(script.expect, extra={"mutants": 100.0}))
    result = cluster.run(expecting, nodes=3, runs=tmp_path)
    assert {one.what for one in result.unmet} == {"mutants"}
    assert "none fails if rank" in result.unmet[1].got


STEP = """
import torch, torch.distributed as dist
from lab import note
dist.init_process_group("gloo")
total = torch.tensor([1.0])
dist.all_reduce(total)
note("total", total.item())
dist.destroy_process_group()
"""
TESTS = """
def test_total(lab_run):
    assert lab_run("main.py", nodes=2).ranks[0].notes["total"] == 2.0
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_tests_of_pytest_on_warm_clusters_notice_mutants(tmp_path: Path) -> None:
    written(tmp_path, STEP)
    (tmp_path / "test_main.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = ["--json", "--mutants", "1", "--kinds", "nan", "--", "pytest", "test_main.py"]
    words = [sys.executable, "-m", "lab.cli.main", "mutate", *options]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    (mutant,) = json.loads(done.stdout)["mutants"]
    assert (mutant["line"], mutant["fate"], mutant["how"]) == ("main.py:6", "caught", "test_main::test_total failed")


@pytest.mark.half
@pytest.mark.docker
def test_mutants_of_tests_whose_ranks_are_on_docker_are_refused(tmp_path: Path) -> None:
    written(tmp_path, STEP)
    (tmp_path / "test_main.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    words = [sys.executable, "-m", "lab.cli.main", "mutate", "--", "pytest", "test_main.py", "--lab-engine", "docker"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--lab-engine local" in done.stderr


SPAWNING = """
import time, torch, torch.distributed as dist, torch.multiprocessing as mp

def work(rank, store):
    dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=2)
    total = torch.tensor([1.0])
    dist.all_reduce(total)
    until = time.monotonic() + (0 if total.item() == 2 else 8)
    while time.monotonic() < until:
        pass
    dist.barrier()
    dist.destroy_process_group()

def test_work(tmp_path):
    mp.spawn(work, (tmp_path / "store",), 2)
"""


@pytest.mark.long  # tests without ranks that compute take the same way
@pytest.mark.timeout(600)
def test_a_test_that_was_ended_while_its_ranks_computed_caught_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_work.py").write_text(SPAWNING)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = ["--json", "--mutants", "1", "--kinds", "nan", "--", "pytest", "test_work.py"]
    words = [sys.executable, "-m", "lab.cli.main", "mutate", *options]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    (mutant,) = json.loads(done.stdout)["mutants"]
    assert (mutant["line"], mutant["fate"]) == ("test_work.py:7", "survived")


@pytest.mark.long  # tests whose ranks compute take the same way
@pytest.mark.timeout(600)
def test_a_test_that_needs_its_port_for_itself_is_not_tried_twice_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    same_port = SPAWNING.replace('f"file://{store}"', f'"tcp://127.0.0.1:{port}"').replace("else 8)", "else 1)")
    (tmp_path / "test_work.py").write_text(same_port)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = ["--json", "--mutants", "2", "--kinds", "nan", "--", "pytest", "test_work.py"]
    words = [sys.executable, "-m", "lab.cli.main", "mutate", *options]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert [one["fate"] for one in json.loads(done.stdout)["mutants"]] == ["survived", "survived"]


@pytest.mark.timeout(1800)
def test_the_diagnosis_of_thirty_mutants_is_mostly_right() -> None:
    score = mutants.run_score(30, 7, mutants.list_sources([]), 2)
    figures = mutants.figures(score.marks)
    assert figures["mutants"] == 30
    wrong = [(one.command, one.truth, one.answer) for one in score.marks if not one.right]
    assert figures["kind"] >= 26, wrong
    assert figures["rank"] >= 26, wrong
    assert figures["line"] >= 24, wrong
    assert figures["accused"] <= 1, wrong
