"""Which case comes next, how large clusters are, when a further one pays, and how many there may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.features.suite.run import (
    choose_cluster,
    choose_jobs,
    estimate_s,
    is_worth_making,
    known_durations,
    order_cases,
)
from lab.plan.cluster import Shape
from lab.record.write import RecordWriter
from tests.features.suite.cases import attempt, case

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


def test_the_longest_come_first_on_several_clusters_only():
    cases = many(4)
    known_s = {"c1": 3.0, "c2": 9.0, "c3": 1.0}
    assert order_cases(cases, jobs=2, shuffle=None, known_s=known_s) == [2, 0, 1, 3]
    assert order_cases(cases, jobs=1, shuffle=None, known_s=known_s) == [0, 1, 2, 3]
    assert order_cases(cases, jobs=2, shuffle=None, known_s={}) == [0, 1, 2, 3]


def test_an_order_by_chance_is_the_same_for_the_same_seed():
    cases = many(20)
    first, again, other = (order_cases(cases, jobs=1, shuffle=seed, known_s={}) for seed in (1, 1, 2))
    assert first == again != other
    assert sorted(first) == list(range(20))


def test_what_cannot_run_is_in_no_order():
    assert order_cases([case(), case(skipped="why")], jobs=1, shuffle=None, known_s={}) == [0]


def test_a_case_fits_a_cluster_of_its_kind_that_is_large_enough():
    cases = [case(nodes=5), case(nodes=2, shape=Shape(nodes=2, image="x")), case(nodes=3), case(nodes=2)]
    assert [one.fits(Shape(nodes=3)) for one in cases] == [False, False, True, True]


def test_a_cluster_is_as_large_as_the_largest_that_is_left_and_could_share_it():
    two, other, three = case(nodes=2), case(nodes=5, shape=Shape(nodes=5, image="x")), case(nodes=3)
    assert choose_cluster(two, [other, three]) == Shape(nodes=3)
    assert choose_cluster(two, []) == Shape(nodes=2)
    assert choose_cluster(other, [two, three]) == Shape(nodes=5, image="x")


def test_a_further_cluster_pays_only_once_what_is_left_is_long_against_making_one():
    def pays(cases: list, serving: int, *, measured_s: tuple[float, ...] = (), make_s: float = 2.0) -> bool:
        return is_worth_making(cases, serving, known_s={"c0": 12.0}, measured_s=measured_s, make_s=make_s)

    assert pays(many(1), 0, make_s=0.0)
    assert not pays(many(9), 1, make_s=0.0), "nobody knows yet what making one takes"
    assert pays(many(1), 1), "12 s are known"
    assert not pays(many(1), 2)
    assert not pays([case("new")], 1)
    assert pays([case("new")], 1, measured_s=(30.0,)), "what runs now takes as long already"


def test_what_has_ended_tells_what_is_left():
    assert estimate_s(many(3), {}, [2.0, 4.0]) == 9.0
    assert estimate_s(many(1), {}, [2.0, 4.0, 9.0]) == 5.0


def test_what_scenarios_took_is_read_from_their_latest_records(tmp_path: Path):
    for folder, seconds in (("20260101-000000-a", 5.0), ("20260102-000000-a-2", 7.0), ("20260103-000000-b-1", 1.0)):
        writer = RecordWriter(tmp_path, "x")
        writer.finish(attempt(duration_s=seconds).result)
        writer.path.rename(tmp_path / folder)
    (tmp_path / "20260104-000000-a").mkdir()
    (tmp_path / "suite.html").touch()
    assert known_durations(tmp_path, ["a", "b-1", "c"]) == {"a": 7.1, "b-1": 1.1}
    assert known_durations(tmp_path / "none", ["a"]) == {}
