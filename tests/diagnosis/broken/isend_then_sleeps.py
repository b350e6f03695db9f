# kind: never_entered
# rank: 0
"""A rank has sent without waiting, and sleeps before the barrier."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 0:
    handle = dist.isend(torch.ones(1), dst=1)
    time.sleep(3600)  # cause
dist.barrier()
