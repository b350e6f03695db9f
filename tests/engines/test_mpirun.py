"""Ranks that MPICH's mpiexec starts, through proxies that the agents start."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab import Result, distributed
from lab.spec.launching import Launching
from tests.golden import golden

Run = Callable[..., Result]

pytestmark = pytest.mark.local_first


def test_ranks_of_mpirun_are_where_the_plan_has_them_and_know_it_from_mpi_and_torchrun(run: Run):
    result = run("by_mpi.py", nodes=2, nproc_per_node=2, backend="mpi")
    assert result.passed, result.reason
    for rank, found in enumerate(result.ranks):
        assert found.node == f"node{rank // 2}"
        assert found.notes["mpi"] == found.notes["torchrun"] == [rank, 4, rank % 2]
        assert (found.notes["group"], found.notes["sum"]) == ([rank, 4], [4.0])


@pytest.mark.long
def test_a_world_of_mpi_whose_store_keeps_nothing_runs_in_strict_order(run: Run):
    result = run("by_mpi.py", nodes=2, backend="mpi", env={"LAB_STRICT_ORDER": "1"})
    assert result.passed, result.reason


@pytest.mark.long
def test_gloo_carries_the_bytes_of_ranks_that_mpirun_starts_cold(run: Run):
    result = run("by_mpi.py", nodes=2, launcher=Launching(name="mpirun"), cold=True)
    assert result.passed, result.reason
    assert [found.notes["mpi"] for found in result.ranks] == [[0, 2, 0], [1, 2, 0]]


@pytest.mark.long
def test_a_rank_that_raises_is_the_culprit_though_mpi_ends_all_of_them(run: Run):
    result = run("by_mpi.py", 1, nodes=3, backend="mpi")
    assert result.verdict == "failed"
    assert result.culprit is not None
    assert result.culprit.rank == 1
    assert golden(1) in result.reason


@pytest.mark.long
def test_functions_are_called_on_ranks_that_mpirun_starts(engine: str):
    @distributed(nodes=2, engine=engine, backend="mpi")
    def total(rank: int) -> float:
        import torch
        import torch.distributed as dist

        x = torch.tensor([float(rank)])
        dist.all_reduce(x)
        return x.item()

    assert total() == [1.0, 1.0]
