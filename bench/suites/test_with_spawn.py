"""The same thirty tests by torch.multiprocessing: three processes of this machine for each."""

import os
import socket

import pytest
import torch.distributed as dist
import torch.multiprocessing as mp
from bodies import BODIES, SIZES


def run(rank, port, body, size):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    dist.init_process_group("gloo", rank=rank, world_size=3)
    body(rank, 3, size)
    dist.destroy_process_group()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("body", BODIES)
def test_on_ranks(body, size):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(run, args=(port, body, size), nprocs=3)
