"""Tests that run on every rank of real nodes. `lab help pytest` says more."""

import lab


@lab.distributed(nodes=3)
def test_every_rank_gets_the_sum_of_all(rank, world_size):
    import torch  # here, so that only the nodes need it
    import torch.distributed as dist

    total = torch.tensor([rank])
    dist.all_reduce(total)
    assert total.item() == sum(range(world_size))
