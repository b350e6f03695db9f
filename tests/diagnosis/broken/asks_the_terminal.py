# kind: failed | never_entered
# rank: 1
"""A debugging question that was left in."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 1:
    input("go on? ")  # cause
dist.all_reduce(torch.ones(1))
