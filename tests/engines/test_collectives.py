"""Plain torch.distributed on a cluster: every size gives the right values, and ranks are node-major."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab import Result

SIZES = [(1, 1), (3, 1), (2, 3), pytest.param(2, 1, marks=pytest.mark.long)]


@pytest.mark.local_first
@pytest.mark.parametrize(("nodes", "nproc_per_node"), SIZES)
def test_scatter_broadcast_and_all_reduce_give_every_rank_its_value(
    run_once: Callable[..., Result], nodes: int, nproc_per_node: int
) -> None:
    result = run_once("collectives.py", nodes=nodes, nproc_per_node=nproc_per_node)

    assert result.passed, result.reason
    world_size = nodes * nproc_per_node
    assert [rank.notes["scattered"] for rank in result.ranks] == [[10.0 * rank] for rank in range(world_size)]
    assert [rank.notes["broadcast"] for rank in result.ranks] == [[world_size - 1.0] * 3] * world_size
    assert [rank.notes["total"] for rank in result.ranks] == [[world_size * (world_size + 1) // 2]] * world_size


@pytest.mark.local_first
@pytest.mark.parametrize(("nodes", "nproc_per_node"), [(3, 1), (2, 3)])
def test_ranks_are_node_major_and_every_worker_knows_where_it_is(
    run_once: Callable[..., Result], nodes: int, nproc_per_node: int
) -> None:
    result = run_once("collectives.py", nodes=nodes, nproc_per_node=nproc_per_node)

    assert [(rank.rank, rank.node, rank.local_rank) for rank in result.ranks] == [
        (node * nproc_per_node + local, f"node{node}", local)
        for node in range(nodes)
        for local in range(nproc_per_node)
    ]
    assert [rank.notes["who"] for rank in result.ranks] == [
        {
            "RANK": str(rank.rank),
            "LOCAL_RANK": str(rank.local_rank),
            "GROUP_RANK": rank.node.removeprefix("node"),
            "WORLD_SIZE": str(nodes * nproc_per_node),
            "LOCAL_WORLD_SIZE": str(nproc_per_node),
        }
        for rank in result.ranks
    ]
    assert {rank.notes["group_world_size"] for rank in result.ranks} == {str(nodes)}


@pytest.mark.trains
@pytest.mark.local_first
@pytest.mark.parametrize(("nodes", "nproc_per_node"), SIZES)
def test_ddp_training_ends_with_the_same_parameters_on_every_rank(
    run: Callable[..., Result], nodes: int, nproc_per_node: int
) -> None:
    result = run("ddp.py", nodes=nodes, nproc_per_node=nproc_per_node)

    assert result.passed, result.reason
    parameters = [rank.notes["parameters"] for rank in result.ranks]
    assert len(parameters[0]) == 10
    assert parameters == [parameters[0]] * len(parameters)
    if len(parameters) > 1:
        assert result.ranks[0].notes["losses"] != result.ranks[1].notes["losses"], "every rank has data of its own"


@pytest.mark.long  # test_warm and test_failures have cold runs too
@pytest.mark.local_first
def test_a_cold_run_gives_the_same_values_as_a_warm_one(run: Callable[..., Result]) -> None:
    warm, cold = run("collectives.py", nodes=2), run("collectives.py", nodes=2, cold=True)

    assert cold.passed, cold.reason
    assert [rank.notes for rank in cold.ranks] == [rank.notes for rank in warm.ranks]
