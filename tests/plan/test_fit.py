"""How large a run is, what cluster is made for it, and whether one that is there will do."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.errors import ClusterError
from lab.plan.cluster import Shape
from lab.plan.plan import PlanOptions, planned_clusters, refuse_unfit, shape_for, unmade_cluster, with_asked
from lab.spec.keys import Volume
from lab.spec.scenario import Resources, Scenario


def scenario(**more) -> Scenario:
    return Scenario(name="s", script=Path("/s/s.py"), **more)


@pytest.mark.parametrize(
    ("asked", "said", "size"),
    [
        (PlanOptions(), {}, (5, 2)),
        (PlanOptions(), {"nodes": 3}, (3, 2)),
        (PlanOptions(), {"nodes": 3, "nproc_per_node": 4}, (3, 4)),
        (PlanOptions(nodes=1), {"nodes": 3, "nproc_per_node": 4}, (1, 4)),
        (PlanOptions(nproc_per_node=1), {"nodes": 3, "nproc_per_node": 4}, (3, 1)),
    ],
)
def test_what_is_asked_for_goes_before_what_the_scenario_says_and_that_before_the_cluster(
    asked: PlanOptions, said, size
):
    assert asked.size_of_run(scenario(**said), Shape(nodes=5, nproc_per_node=2)) == size


def test_a_cluster_made_for_a_run_has_what_was_asked_for_and_else_what_the_scenario_says():
    resources = Resources(cpus=2.0, memory_bytes=2**30, gpus=1)
    picky = scenario(nodes=2, resources=resources)
    assert shape_for(picky, PlanOptions(), {}) == Shape(nodes=2, cpus=2.0, memory_bytes=2**30, gpus=1)
    assert shape_for(picky, PlanOptions(nproc_per_node=3), {"cpus": 1.0, "image": "mine:1"}) == Shape(
        nodes=2, nproc_per_node=3, cpus=1.0, memory_bytes=2**30, gpus=1, image="mine:1"
    )


def test_a_folder_that_was_asked_for_is_added_to_those_of_the_scenario_and_wins_at_the_same_place():
    def volume(source: str, target: str) -> Volume:
        return Volume(source=Path(source), target=target)

    told = scenario(volumes=(volume("/a", "/data"), volume("/b", "/models")))
    asked = {"volumes": (volume("/c", "/data"),)}
    assert shape_for(told, PlanOptions(), asked).volumes == (volume("/c", "/data"), volume("/b", "/models"))


def test_the_cluster_of_many_is_as_large_as_the_largest_and_one_with_wishes_has_its_own():
    many = [scenario(), scenario(nodes=4), scenario(nodes=2, resources=Resources(cpus=1.0))]
    planned = planned_clusters(many, PlanOptions(), {"image": "mine:1"}, None, "c")
    assert [cluster.name for cluster in planned] == ["c", "c", "c-own"]
    assert [cluster.shape for cluster in planned] == [
        Shape(nodes=4, image="mine:1"),
        Shape(nodes=4, image="mine:1"),
        Shape(nodes=2, image="mine:1", cpus=1.0),
    ]


@pytest.mark.parametrize(
    ("said", "size", "message"),
    [
        ({"nodes": 4}, PlanOptions(), "s needs 4 nodes, but cluster c has 3"),
        ({}, PlanOptions(nodes=9), "s needs 9 nodes, but cluster c has 3"),
        ({"resources": Resources(cpus=2.0)}, PlanOptions(), "cpus: 1, requested 2"),
        ({"resources": Resources(memory_bytes=5)}, PlanOptions(), "memory: none, requested 5 B"),
        ({"resources": Resources(gpus=1)}, PlanOptions(), "gpus: 0, requested 1"),
    ],
)
def test_a_scenario_that_a_cluster_cannot_run_is_refused(said, size: PlanOptions, message: str):
    cluster = unmade_cluster(Shape(nodes=3, cpus=1.0), "c")
    refuse_unfit(cluster, scenario(), PlanOptions(nodes=3))
    with pytest.raises(ClusterError, match=message):
        refuse_unfit(cluster, scenario(**said), size)


@pytest.mark.features
def test_packages_and_data_that_were_asked_for_are_added_and_win_over_those_of_the_same_name():
    told = scenario(
        extra={"requirements": ("accelerate>=1", "tqdm==4.0")}, data={"a": Path("/a"), "b": Path("/b")}, image="x:1"
    )
    asked = {"requirements": ("numpy", "tqdm>=4.6"), "data": {"b": Path("/c")}}
    whole = with_asked(told, asked)
    assert whole.requirements == ("accelerate>=1", "numpy", "tqdm>=4.6")
    assert whole.data == {"a": Path("/a"), "b": Path("/c")}
    assert with_asked(told, {"image": "y:2"}).image == "y:2"
    assert with_asked(told, {}) == told
    shape = shape_for(told, PlanOptions(), asked)
    assert (shape.image, shape.requirements, shape.data) == ("x:1", whole.requirements, whole.data)
    assert Shape.from_json(shape.to_json()) == shape


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"image": "x:1"}, "image: none, requested x:1"),
        ({"data": {"a": Path("/a")}}, "data: b=/b, requested b=/b, a=/a"),
        ({"data": {"b": Path("/a")}}, "data: b=/b, requested b=/a"),
    ],
)
def test_a_cluster_with_another_image_or_without_the_data_is_refused(said, message: str):
    cluster = unmade_cluster(Shape(nodes=1, data={"b": Path("/b")}), "c")
    with pytest.raises(ClusterError, match=message):
        refuse_unfit(cluster, scenario(**said), PlanOptions())
    refuse_unfit(cluster, scenario(data={"b": Path("/b")}), PlanOptions())
