# kind: unmatched
# rank: 0 | 2 | nobody
# innocent: 1
# timeout: 8s
"""Rank 2 waits for a message that nobody sends, until the group's time-out passes for everybody."""

from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=1))
rank = dist.get_rank()
if rank == 2:
    dist.recv(torch.empty(4), src=0)  # cause
dist.barrier()  # also
