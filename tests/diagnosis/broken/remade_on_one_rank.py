# kind: groups
# rank: 1
"""Rank 1 recovers from an error of its own by making the default group again."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
value = torch.ones(1)
dist.all_reduce(value)
if rank == 1:
    dist.destroy_process_group()  # cause
    dist.init_process_group("gloo")
dist.all_reduce(value)
dist.barrier()
