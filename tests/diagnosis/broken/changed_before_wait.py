# kind: changed_before_wait
# rank: 1
"""One rank clips its gradient while it is being reduced."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.full((64,), float(rank + 1))
if rank != 1:
    time.sleep(0.3)
handle = dist.all_reduce(gradient, async_op=True)  # cause
if rank == 1:
    gradient.zero_()  # cause
handle.wait()
