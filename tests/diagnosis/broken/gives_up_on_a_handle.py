# kind: failed | never_entered | late
# rank: 0
# timeout: 6s
"""Two ranks give their handle a time limit; rank 0 is busy with its checkpoint."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(4):
    if rank == 0 and step == 2:
        time.sleep(60)  # cause
    g = torch.ones(100)
    work = dist.all_reduce(g, async_op=True)
    work.wait(timedelta(seconds=1))
