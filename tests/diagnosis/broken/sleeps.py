# kind: never_entered
# rank: 1
"""A rank waits long before it tries again to download."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
dist.all_reduce(torch.ones(1))
if rank == 1:
    time.sleep(3600)  # cause
dist.all_reduce(torch.ones(1))
