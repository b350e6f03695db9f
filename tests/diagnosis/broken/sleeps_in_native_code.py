# kind: never_entered
# rank: 2
"""A native library of one rank waits for its device."""

import ctypes

import torch
import torch.distributed as dist

libc = ctypes.CDLL(None)
dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(5):
    if rank == 2 and step == 3:
        libc.sleep(3600)  # cause
    t = torch.ones(4)
    dist.all_reduce(t)
