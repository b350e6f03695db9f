"""Replicas of a DDP module that are not the same on all ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.finding import Finding
from lab.diagnosis.judge import judge_evidence
from lab.features.training.replicas import find_unlike_replicas
from tests.diagnosis.facts import exited, raised, told_facts, write_events
from tests.golden import golden
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit
PARAMETERS = [["a.weight", [4, 4]], ["b.weight", [4, 4]]]


@pytest.fixture
def made(tmp_path: Path) -> TraceMaker:
    return TraceMaker(tmp_path / "run", 3)


def module(made: TraceMaker, rank: int, parameters: list[list[Any]], d: int = 1, **more: Any) -> None:
    params = [[name, "float32", shape] for name, shape in parameters]
    buckets = {"buckets": [list(range(len(params)))], **more}
    made.line(rank, "ddp", 5, d=d, g="0", params=params, rebuilt=False, at="train.py:20", **buckets)


def norms(made: TraceMaker, rank: int, steps: int, *values: float | None) -> None:
    made.line(rank, "norms", 10 * steps, d=1, steps=steps, norms=list(values))


def found(made: TraceMaker) -> list[Finding]:
    return find_unlike_replicas(read_evidence(made.record()))


def test_parameters_in_another_order_are_told_with_the_rank(made: TraceMaker) -> None:
    for rank in range(3):
        module(made, rank, PARAMETERS[::-1] if rank == 2 else PARAMETERS)
    [finding] = found(made)
    assert (finding.kind, finding.ranks, finding.others) == ("parameter_order", (2,), (0, 1))
    assert told_facts(finding) == {
        "how": "order",
        "at": ["train.py:20"],
        "sides": [{"ranks": [0, 1], "what": "a.weight"}, {"ranks": [2], "what": "b.weight"}],
        "place": 1,
    }
    assert finding.lines == ("train.py:20",)


def test_names_that_each_rank_makes_for_itself_are_fine(made: TraceMaker) -> None:
    for rank in range(3):
        module(made, rank, [[f"head{rank}.weight", [4, 4]]])
    assert found(made) == []


def test_a_shape_of_its_own_is_told_and_in_a_failed_run_blamed(made: TraceMaker) -> None:
    for rank in range(3):
        module(made, rank, [["a.weight", [8, 4]] if rank == 0 else ["a.weight", [4, 4]]], buckets=[])
    error = "RuntimeError: [1]: params[0] in this process with sizes [4, 4] appears not to match sizes of process 0"
    write_events(made, exited(0, None, signal="SIGKILL", stopped=True), raised(1, error, 20), raised(2, error, 20, 5.2))
    evidence = read_evidence(made.record())
    [finding] = find_unlike_replicas(evidence)
    assert told_facts(finding) == {
        "how": "parameter",
        "at": ["train.py:20"],
        "sides": [
            {"ranks": [0], "what": "a.weight (float32 [8, 4])"},
            {"ranks": [1, 2], "what": "a.weight (float32 [4, 4])"},
        ],
        "place": 1,
    }
    culprit = judge_evidence(evidence).culprit
    assert culprit is not None
    assert culprit.rank == 0


def test_a_rank_that_ended_before_its_module_was_on_record_counts_by_what_ddp_compared(made: TraceMaker) -> None:
    sizes = {0: (4, 4, 4, 1), 1: (8, 4, 4, 1), 2: (4, 4, 4, 1)}
    for rank, own in sizes.items():
        made.mark(rank, "DDP()", 1, 4)
        made.call(rank, "broadcast", 2, 3, [own], [sizes[0]], dtype="int64", root=0)
    for rank in (1, 2):
        module(made, rank, [["a.weight", list(sizes[rank][:2])]], buckets=[])
    [finding] = found(made)
    assert (finding.kind, finding.ranks, finding.others) == ("shape", (1,), (2,))


def test_a_parameter_that_only_one_rank_has_is_named(made: TraceMaker) -> None:
    for rank in range(3):
        module(made, rank, [*PARAMETERS, ["extra.bias", [4]]] if rank == 1 else PARAMETERS, buckets=[])
    [finding] = found(made)
    assert finding.ranks == (1,)
    assert told_facts(finding) == {
        "how": "parameters",
        "at": ["train.py:20"],
        "sides": [{"ranks": [0, 2], "what": "2 parameters"}, {"ranks": [1], "what": "3 parameters"}],
        "only_here": ["extra.bias"],
    }
    assert told_facts(finding) == {
        "how": "parameters",
        "at": ["train.py:20"],
        "sides": [{"ranks": [0, 2], "what": "2 parameters"}, {"ranks": [1], "what": "3 parameters"}],
        "only_here": ["extra.bias"],
    }


def test_of_two_ranks_with_other_parameters_nobody_is_named(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    for rank in range(2):
        module(made, rank, PARAMETERS[rank:], buckets=[])
    error = "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 2 params"
    write_events(made, raised(0, error, 20), raised(1, error, 20, 5.1))
    evidence = read_evidence(made.record())
    verdict = judge_evidence(evidence)
    assert (verdict.verdict, verdict.culprit) == ("failed", None)
    assert golden(1) in verdict.reason


def test_values_that_went_apart_are_told_from_when_on(made: TraceMaker) -> None:
    for rank in range(3):
        module(made, rank, PARAMETERS)
        for steps in (1, 2, 4):
            norms(made, rank, steps, 1.0, 2.5 if rank == 1 and steps > 1 else 2.0 + 1e-7 * rank)
    [finding] = found(made)
    assert (finding.kind, finding.ranks) == ("diverged", (1,))
    assert told_facts(finding) == {
        "how": "norm",
        "at": ["train.py:20"],
        "sides": [{"ranks": [0, 2], "what": "2"}, {"ranks": [1], "what": "2.5"}],
        "place": 2,
        "parameter": "b.weight",
        "steps": 2,
        "unused_forward": True,
        "no_exchange": True,
    }


def test_values_that_were_apart_only_for_a_while_are_not_told(made: TraceMaker) -> None:
    for rank in range(3):
        module(made, rank, PARAMETERS)
        for steps in (1, 2, 4):
            norms(made, rank, steps, 1.0 + rank * (steps == 2), None)
    assert found(made) == []


def test_only_what_all_ranks_came_to_is_compared(made: TraceMaker) -> None:
    for rank in range(3):
        module(made, rank, PARAMETERS)
        norms(made, rank, 1, 1.0, 1.0)
    norms(made, 0, 2, 9.0, 9.0)
    assert found(made) == []


def test_modules_are_compared_with_those_of_the_same_turn_in_their_group(made: TraceMaker) -> None:
    for rank in range(3):
        if rank == 0:
            made.line(rank, "ddp", 4, d=1, g="alone", params=[["x", "float32", [2]]], buckets=[[0]], rebuilt=False)
        module(made, rank, PARAMETERS, d=2 if rank == 0 else 1)
    assert found(made) == []


def trained(made: TraceMaker, stepping: int = 0, *, between: str = "") -> None:
    """A rank steps the module, the others do not; all exchange gradients."""
    for rank in range(3):
        module(made, rank, PARAMETERS)
        for turn in (1, 2, 3):
            made.line(rank, "mark", 10 * turn, n="backward", e=0, at="train.py:30")
            made.call(rank, "all_reduce", 10 * turn + 1, 10 * turn + 2, [[1.0]], [[3.0]], red="SUM", via="backward")
            made.line(rank, "mark", 10 * turn + 3, n="backward", e=1)
            if rank == stepping:
                made.mark(rank, "step", 10 * turn + 4, 10 * turn + 5, at="train.py:31")
            if between:
                made.call(rank, between, 10 * turn + 6, 10 * turn + 7, [[1.0] * 32], [[1.0] * 32])
    for steps in (1, 2):
        norms(made, stepping, steps, float(steps), 1.0)


def test_a_module_that_only_some_ranks_step_is_told(made: TraceMaker) -> None:
    trained(made)
    [finding] = found(made)
    assert (finding.kind, finding.ranks, finding.lines) == ("diverged", (0,), ("train.py:31", "train.py:20"))
    assert told_facts(finding) == {"how": "steps", "at": ["train.py:20"], "stepped": [0], "stepped_at": ["train.py:31"]}
    assert told_facts(finding) == {"how": "steps", "at": ["train.py:20"], "stepped": [0], "stepped_at": ["train.py:31"]}


def test_nothing_is_said_where_the_weights_may_have_been_sent_round(made: TraceMaker) -> None:
    trained(made, between="broadcast")
    assert found(made) == []


@pytest.mark.parametrize("intent", ["averages", "hook"])
def test_nothing_is_said_of_replicas_that_are_to_differ_for_a_while(made: TraceMaker, intent: str) -> None:
    made.group("1", range(3), 1)
    for rank in range(3):
        module(made, rank, PARAMETERS)
        norms(made, rank, 1, 1.0 + rank, 1.0)
        if intent == "averages":
            made.call(rank, "all_reduce", 20, 21, [[1.0] * 32], [[1.0] * 32], red="SUM")
        else:
            made.line(rank, "mark", 20, n="backward", e=0, at="train.py:30")
            made.call(rank, "all_reduce", 21, 22, [[1.0]], [[1.0]], red="SUM", group="1", via="backward")
            made.line(rank, "mark", 23, n="backward", e=1)
    assert found(made) == []


@pytest.mark.parametrize("unlike", ["lr", "gradient", None])
def test_what_differed_in_the_first_step_is_told_with_its_line(made: TraceMaker, unlike: str | None) -> None:
    for rank in range(3):
        module(made, rank, PARAMETERS)
        odd = rank == 2
        facts = {"set": {"lr": 0.2 if odd and unlike == "lr" else 0.1}, "at": "train.py:40"}
        grads = [1.0, 3.0 if odd and unlike == "gradient" else 2.0]
        made.line(rank, "norms", 10, d=1, steps=1, norms=[1.0, 5.0 if odd else 4.0], grads=grads, **facts)
    [finding] = found(made)
    assert (finding.kind, finding.ranks) == ("diverged", (2,))
    sides = {"lr": ("0.1", "0.2"), "gradient": ("2", "3")}.get(unlike or "")
    known = sides and {
        "what": unlike,
        "sides": [{"ranks": [0, 1], "what": sides[0]}, {"ranks": [2], "what": sides[1]}],
        "line": "train.py:40",
    }
    assert told_facts(finding).get("first_unlike") == known
    assert finding.lines[0] == ("train.py:40" if known else "train.py:20")


def test_a_setting_that_never_changed_is_told_with_the_line_that_made_the_optimizer(made: TraceMaker) -> None:
    for rank in range(3):
        module(made, rank, PARAMETERS)
        facts = {"at": "train.py:40", "set": {"lr": 0.1 + rank // 2}, "made": "train.py:22"}
        made.line(rank, "norms", 10, d=1, steps=1, norms=[1.0, 4.0 + rank // 2], grads=[1.0, 2.0], **facts)
    [finding] = found(made)
    assert (finding.ranks, finding.lines[0]) == ((2,), "train.py:22")


def test_replicas_that_diverge_later_are_told_with_the_line_of_the_step(made: TraceMaker) -> None:
    for rank in range(3):
        module(made, rank, PARAMETERS)
        for steps in (1, 2):
            off = rank == 1 and steps == 2
            line = {
                "d": 1,
                "steps": steps,
                "norms": [1.0, 2.5 if off else 2.0],
                "at": "train.py:32",
                "set": {"lr": 0.1},
            }
            made.line(rank, "norms", 10 * steps, **line)
    [finding] = found(made)
    assert (finding.kind, finding.ranks, finding.lines) == ("diverged", (1,), ("train.py:32", "train.py:20"))
