"""Thirty tests on three nodes of the lab."""

import pytest
from bodies import BODIES, SIZES

import lab


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("body", BODIES)
@lab.distributed(nodes=3)
def test_on_ranks(body, size, rank, world_size):
    body(rank, world_size, size)
