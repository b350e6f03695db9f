# kind: failed
# rank: 2
# says: SIGKILL
"""The kernel takes the process away, as it does when memory is short."""

import os
import signal

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(3):
    dist.all_reduce(torch.ones(1))  # cause
    if rank == 2 and step == 1:
        os.kill(os.getpid(), signal.SIGKILL)  # cause
