"""Tests of ringlib on nodes of the lab."""

import pytest
import torch
import torch.distributed as dist
from ringlib import all_reduce, neighbours

import lab


def test_the_ring_is_closed():
    assert neighbours(0, 3) == (2, 1)
    assert neighbours(2, 3) == (1, 0)


@pytest.mark.parametrize("numel", [1, 2, 7, 1000])
@lab.distributed(nodes=3)
def test_it_adds_up_what_torch_adds_up(rank, world_size, numel):
    torch.manual_seed(rank)
    mine = torch.rand(numel)
    expected = mine.clone()
    dist.all_reduce(expected)
    all_reduce(mine)
    torch.testing.assert_close(mine, expected)


@pytest.fixture
def shift():
    return 5


@lab.distributed(nodes=2)
def test_a_fixture_goes_along(rank, shift):
    numbers = torch.full((3,), float(rank + shift))
    all_reduce(numbers)
    assert numbers.tolist() == [2.0 * shift + 1] * 3


def total_of(numbers):
    tensor = torch.tensor(numbers)
    all_reduce(tensor)
    return tensor.sum().item()


@pytest.mark.lab(nodes=2)
def test_what_ranks_return_comes_back_by_rank(cluster):
    assert cluster.call(total_of, [1, 2, 3]) == [12, 12]


def test_the_demo_at_another_size(lab_run):
    result = lab_run("../demo.yaml", nodes=2)
    assert result.passed, result.reason
    assert [rank.notes["last"] for rank in result.ranks] == [27.0, 27.0]


def test_a_plain_script_needs_no_scenario(lab_run):
    result = lab_run("../demo.py", nodes=3)
    assert result.passed, result.reason
