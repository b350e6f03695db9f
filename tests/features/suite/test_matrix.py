"""Cases from scenarios, sizes, images and backends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.errors import UsageError
from lab.features.faults.fault import Fault, When
from lab.features.faults.kinds.nodes import Kill
from lab.features.suite.cases import Case, Matrix, SuiteRequest, make_cases, parse_filter
from lab.plan.cluster import Shape
from lab.spec.launching import Launching
from lab.spec.scenario import Expect, Resources, Scenario
from tests.features.suite.cases import case, scenario
from tests.golden import golden


def made(scenarios: list[Scenario], matrix: Matrix, **more: Any) -> list[Case]:
    given = {name: more.pop(name) for name in ("engine", "usual", "seed") if name in more}
    return make_cases(SuiteRequest(scenarios=scenarios, matrix=matrix, **more), **given)


def test_without_a_matrix_each_scenario_is_one_case_of_its_own_size():
    one, two = made([scenario("a", nodes=3), scenario("b")], Matrix())
    assert (one.id, one.nodes, one.world_size) == ("a", 3, 3)
    assert (two.id, two.nodes) == ("b", 1)


def test_a_cluster_that_is_there_gives_its_size_to_what_says_none():
    (one,) = made([scenario()], Matrix(), usual=Shape(nodes=4, nproc_per_node=2))
    assert (one.nodes, one.nproc_per_node) == (4, 2)


def test_every_combination_is_a_case_with_its_place_in_its_id():
    matrix = Matrix(nodes=(2, 5), nproc_per_node=(1, 2), image=("a:1",), backend=("gloo",))
    found = made([scenario(nodes=3)], matrix)
    assert [one.id for one in found] == [
        f"train[nodes={nodes},nproc-per-node={each},backend=gloo,image=a:1]" for nodes in (2, 5) for each in (1, 2)
    ]
    assert found[3].world_size == 10
    assert found[3].shape == Shape(nodes=5, image="a:1")
    assert found[3].scenario.image == "a:1"


@pytest.mark.parametrize(
    "expect",
    [
        Expect(exit={2: 1}),
        Expect(logs={2: "x"}),
        Expect(notes={"x": {0: 1, 2: 5}}),
        Expect(extra={"calls": {2: ["barrier"]}}),
        Expect(culprit=2),
    ],
)
def test_a_size_without_a_rank_that_the_scenario_speaks_of_is_skipped_and_says_which(expect: Expect):
    small, large = made([scenario(nodes=3, expect=expect)], Matrix(nodes=(2, 5)))
    assert small.skipped == golden(1)
    assert large.skipped == ""


def test_what_is_expected_of_every_rank_holds_at_any_size():
    expect = Expect(notes={"sum": "world_size"}, extra={"calls": ["barrier"]})
    assert not any(one.skipped for one in made([scenario(expect=expect)], Matrix(nodes=(1, 2))))


@pytest.mark.parametrize("backend", ["ucc", "glo"])
def test_a_backend_that_the_lab_does_not_have_is_refused(backend: str):
    with pytest.raises(UsageError, match=f"no backend '{backend}'.*allowed: gloo"):
        Matrix(backend=("gloo", backend))


def test_a_scenario_is_a_case_on_each_backend_that_is_named_and_skipped_where_that_lacks_what_it_needs():
    matrix = Matrix(backend=("gloo", "mpi"))
    on_gloo, on_mpi = made([scenario(extra={"needs": ("monitored barrier",)})], matrix)
    assert (on_gloo.backend, on_gloo.skipped) == ("gloo", "")
    assert (on_mpi.id, on_mpi.backend) == ("train[backend=mpi]", "mpi")
    assert on_mpi.skipped.startswith(golden(1))


def test_what_torchrun_starts_cannot_be_a_case_on_mpi():
    (one,) = made([scenario(launcher=Launching(name="torchrun"))], Matrix(backend=("mpi",)))
    assert one.skipped.endswith(golden(1))


def test_a_scenario_is_skipped_on_an_engine_that_cannot_break_what_it_breaks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Kill, "needs", "cable")
    breaks = scenario(nodes=3, extra={"faults": (Fault(what=Kill(node="node2"), when=When()),)})
    skipped = {name: made([breaks], Matrix(), engine=name)[0].skipped for name in ("local", "docker", "")}
    assert skipped == {
        "local": golden(1),
        "docker": "",
        "": "",
    }


def test_a_value_that_is_named_twice_is_refused():
    with pytest.raises(UsageError, match=golden(1)):
        Matrix(nproc_per_node=(2, 1, 2))


def test_scenarios_of_the_same_name_are_told_apart_by_their_files():
    first, second = (replace(scenario(), source=Path(f"/x/{folder}/train.yaml")) for folder in ("a", "b"))
    assert [one.id for one in made([first, second, first], Matrix())] == [
        "a/train-1", "b/train", "a/train-3",
    ]  # fmt: skip


def test_repetitions_have_seeds_one_after_the_other_and_all_first_ones_come_first():
    found = made([scenario("a"), scenario("b")], Matrix(), repeat=2, seed=7)
    assert [(one.id, one.seed) for one in found] == [("a #1", 7), ("b #1", 7), ("a #2", 8), ("b #2", 8)]
    assert [one.scenario.env for one in found[1:3]] == [{"LAB_SEED": "7"}, {"LAB_SEED": "8"}]


def test_without_a_seed_scripts_are_given_none():
    assert made([scenario()], Matrix(), repeat=2)[0].scenario.env == {}


def test_a_seed_that_a_scenario_states_stays():
    (stated,) = made([scenario(env={"LAB_SEED": "1"})], Matrix(), seed=7)
    assert stated.scenario.env == {"LAB_SEED": "1"}


def test_what_cannot_run_is_skipped_once_however_often_the_rest_is_repeated():
    found = made([scenario(expect=Expect(culprit=2))], Matrix(nodes=(1, 3)), repeat=3)
    assert [one.id for one in found if one.skipped] == ["train[nodes=1]"]
    assert len(found) == 4


def test_cases_share_a_cluster_whatever_their_size_and_not_what_it_is_made_of():
    small, large, limited = made(
        [scenario("a", nodes=2, nproc_per_node=2), scenario("b", nodes=5),
         scenario("c", nodes=2, resources=Resources(cpus=1.0))],
        Matrix(), shape={"env": {"A": "1"}},
    )  # fmt: skip
    assert small.fits(large.shape)
    assert not large.fits(small.shape)
    assert not limited.fits(large.shape)
    assert limited.shape.cpus == 1.0


# -- which


@pytest.mark.parametrize(
    ("expression", "meant"),
    [
        ("scatter", {"scatter[nodes=2]", "scatter[nodes=5]"}),
        ("SCATTER and nodes=5", {"scatter[nodes=5]"}),
        ("not nodes=5", {"scatter[nodes=2]", "barrier"}),
        ("barrier or (scatter and not nodes=2)", {"barrier", "scatter[nodes=5]"}),
        ("train.py", {"scatter[nodes=2]", "scatter[nodes=5]", "barrier"}),
    ],
)
def test_words_choose_cases_by_name_and_file(expression: str, meant: set[str]):
    cases = [case(name) for name in ("scatter[nodes=2]", "scatter[nodes=5]", "barrier")]
    assert {one.id for one in cases if parse_filter(expression)(one)} == meant


@pytest.mark.parametrize("expression", ["", "and", "a and", "not", "(a", "a)", "a b", "()"])
def test_what_is_no_expression_is_refused(expression: str):
    with pytest.raises(UsageError, match="is invalid"):
        parse_filter(expression)
