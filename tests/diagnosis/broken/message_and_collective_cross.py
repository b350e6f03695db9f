# kind: unmatched | deadlock
# rank: 0 | 1 | nobody
# innocent: 2
"""Rank 0 sends before the barrier, rank 1 receives after it."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
state = torch.ones(4)
if rank == 0:
    dist.send(state, dst=1)  # cause
dist.barrier()  # also
if rank == 1:
    dist.recv(state, src=0)
