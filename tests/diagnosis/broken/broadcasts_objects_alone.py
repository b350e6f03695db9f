# kind: mismatch
# rank: 0
"""Rank 0 broadcasts its configuration; the others forgot to call it."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 0:
    dist.broadcast_object_list([{"epochs": 3}], src=0)  # cause
dist.all_reduce(torch.ones(1))
