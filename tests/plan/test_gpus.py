"""Which GPUs of its node a rank sees."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.plan.cluster import Shape
from lab.plan.plan import gpu_variables, split_gpus, unmade_cluster


@pytest.mark.parametrize(
    ("gpus", "nproc_per_node", "parts"),
    [
        (1, 1, [[0]]),
        (2, 2, [[0], [1]]),
        (4, 2, [[0, 1], [2, 3]]),
        (3, 2, [[0], [1, 2]]),
        (2, 4, [[0], [0], [1], [1]]),
        (1, 3, [[0], [0], [0]]),
        (2, 3, [[0], [0], [1]]),
    ],
)
def test_ranks_have_parts_of_equal_size_and_share_only_where_they_are_more(
    gpus: int, nproc_per_node: int, parts: list[list[int]]
) -> None:
    assert [[*split_gpus(gpus, nproc_per_node, rank)] for rank in range(nproc_per_node)] == parts


def test_a_container_numbers_its_gpus_from_0_and_local_nodes_have_those_of_the_machine() -> None:
    cluster = unmade_cluster(Shape(nodes=2, gpus=2), "c")

    def seen(gpus: str, split: bool) -> list[str]:
        shown = (gpu_variables(replace(cluster, gpus=gpus), 2, rank, split=split) for rank in range(4))
        return [of_rank["CUDA_VISIBLE_DEVICES"] for of_rank in shown]

    assert seen("node", split=True) == ["0", "1", "0", "1"]
    assert seen("machine", split=True) == ["0", "1", "2", "3"]
    assert seen("node", split=False) == ["0,1"] * 4
    assert seen("machine", split=False) == ["0,1", "0,1", "2,3", "2,3"]


@pytest.mark.parametrize("more", [{}, {"gpus": 2, "env": {"CUDA_VISIBLE_DEVICES": "1"}}])
def test_nothing_is_said_where_there_are_none_or_the_cluster_says_it(more: dict) -> None:
    assert gpu_variables(unmade_cluster(Shape(nodes=1, **more), "c"), 1, 0) == {}


def test_ranks_that_share_a_gpu_are_on_different_hosts_for_nccl() -> None:
    cluster = unmade_cluster(Shape(nodes=1, gpus=2), "c")
    hosts = [gpu_variables(cluster, 4, rank, split=True)["NCCL_HOSTID"] for rank in range(4)]
    assert len({*hosts}) == 4
    assert "NCCL_HOSTID" not in gpu_variables(cluster, 2, 0, split=True)
    assert "NCCL_HOSTID" not in gpu_variables(cluster, 4, 0)
