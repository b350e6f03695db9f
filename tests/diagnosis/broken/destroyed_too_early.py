# kind: groups
# rank: 0
# timeout: 8s
"""Rank 0 is done with the group after the epoch, the others still validate; then it writes files."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
value = torch.ones(1)
dist.all_reduce(value)
if rank == 0:
    dist.destroy_process_group()  # cause
    time.sleep(3)
else:
    time.sleep(0.2)
    dist.all_reduce(value)
