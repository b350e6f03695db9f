# kind: unmatched
# rank: 1 | 2 | nobody
# innocent: 0
"""Rank 2 waits for rank 0, but its neighbour is the one that sends."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
state = torch.ones(4)
if rank == 1:
    dist.send(state, dst=2)  # also
elif rank == 2:
    dist.recv(state, src=0)  # cause
dist.barrier()
