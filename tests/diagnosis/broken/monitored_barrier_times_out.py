# kind: never_entered | late
# rank: 2
# timeout: 8s
"""A rank does not come to the monitored barrier, which says so on rank 0."""

import time
from datetime import timedelta

import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 2:
    time.sleep(4)  # cause
dist.monitored_barrier(timeout=timedelta(seconds=1))  # cause
