"""Which case comes next, how large clusters are, when a further one pays, and how many there may be."""

from __future__ import annotations

import pytest

from lab.features.suite.run import choose_cluster, choose_jobs, is_worth_making, order_cases
from lab.plan.cluster import Shape
from tests.features.suite.cases import case

GIB = 1 << 30


def many(count: int, **more) -> list:
    return [case(f"c{number}", **more) for number in range(count)]


@pytest.mark.parametrize(
    ("asked", "cores", "free_bytes", "count", "most"),
    [
        (None, 2, 64 * GIB, 10, 1),
        (None, 16, 64 * GIB, 10, 8),
        (None, 16, 64 * GIB, 3, 3),
        (None, 16, 1 * GIB, 10, 1),
        (None, 16, None, 10, 8),
        (None, 1, 1, 10, 1),
        (5, 2, GIB, 10, 5),
        (5, 2, GIB, 2, 2),
    ],
)
def test_as_many_clusters_as_cores_memory_and_cases_allow(asked, cores, free_bytes, count, most):
    jobs, why = choose_jobs(asked, many(count), cores, free_bytes)
    assert jobs == most
    assert f"{most} cluster" in why
    assert "\n" not in why


def test_an_order_by_chance_is_the_same_for_the_same_seed():
    cases = many(20)
    first, again, other = (order_cases(cases, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert sorted(first) == list(range(20)) == order_cases(cases, None)


def test_what_cannot_run_is_in_no_order():
    assert order_cases([case(), case(skipped="why")], None) == [0]


def test_a_case_fits_a_cluster_of_its_kind_that_is_large_enough():
    cases = [case(nodes=5), case(nodes=2, shape=Shape(nodes=2, image="x")), case(nodes=3), case(nodes=2)]
    assert [one.fits(Shape(nodes=3)) for one in cases] == [False, False, True, True]


def test_a_cluster_is_as_large_as_the_largest_that_is_left_and_could_share_it():
    two, other, three = case(nodes=2), case(nodes=5, shape=Shape(nodes=5, image="x")), case(nodes=3)
    assert choose_cluster(two, [other, three]) == Shape(nodes=3)
    assert choose_cluster(two, []) == Shape(nodes=2)
    assert choose_cluster(other, [two, three]) == Shape(nodes=5, image="x")


def test_a_further_cluster_pays_only_once_what_is_left_is_long_against_making_one():
    assert is_worth_making(1, 0, took_s=(), make_s=0.0)
    assert not is_worth_making(9, 1, took_s=(), make_s=0.0), "nobody knows yet what making one takes"
    assert is_worth_making(1, 1, took_s=(12.0,), make_s=2.0)
    assert not is_worth_making(1, 2, took_s=(12.0,), make_s=2.0)
    assert not is_worth_making(9, 1, took_s=(), make_s=2.0), "an unknown case takes a second"
    assert is_worth_making(3, 1, took_s=(2.0, 6.0), make_s=2.0)
