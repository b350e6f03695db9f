"""A ring of three: each message is between another pair."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
for turn in range(4):
    left = torch.empty(4)
    sent = dist.isend(torch.full((4,), float(rank + turn)), (rank + 1) % size)
    dist.recv(left, (rank - 1) % size)
    sent.wait()
    assert left[0] == (rank - 1) % size + turn
