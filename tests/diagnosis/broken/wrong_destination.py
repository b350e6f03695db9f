# kind: unmatched
# rank: nobody | 0 | 1
# innocent: 2
"""Rank 0 sends to rank 2 what rank 1 waits for."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 0:
    dist.send(torch.ones(1), dst=2)  # cause
elif rank == 1:
    dist.recv(torch.ones(1), src=0)  # also
dist.barrier()
