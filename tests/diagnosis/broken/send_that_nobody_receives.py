# kind: unmatched
# rank: 0 | 1 | nobody
# innocent: 2
"""Rank 0 hands rank 1 a state that it no longer asks for."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
state = torch.ones(4)
if rank == 0:
    dist.send(state, dst=1)  # cause
dist.barrier()  # also
