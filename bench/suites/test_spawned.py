"""The scatter of `scenarios/scatter.py` as people test it without the lab: pytest and `mp.spawn`."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def scatter(rank: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29611", RANK=str(rank), WORLD_SIZE="3")
    dist.init_process_group("gloo")
    received = torch.zeros(1)
    dist.scatter(received, [torch.tensor([10.0 * i]) for i in range(3)] if rank == 0 else None, src=0)
    assert received == 10.0 * rank
    dist.destroy_process_group()


def test_every_rank_receives_its_tensor() -> None:
    mp.spawn(scatter, nprocs=3)
