# kind: failed
# rank: 2
# says: twice
"""A library makes the default group that the script has made already, on one rank only."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
dist.all_reduce(torch.ones(1))
if rank == 2:
    dist.init_process_group("gloo")  # cause
dist.all_reduce(torch.ones(1))
