"""A monitored barrier to which one rank comes a little late."""

import time
from datetime import timedelta

import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for _ in range(3):
    if rank == 2:
        time.sleep(0.1)
    dist.monitored_barrier(timeout=timedelta(seconds=20))
