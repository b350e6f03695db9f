# kind: failed
# rank: 1
# says: SIGSEGV
"""Native code reads from where nothing is."""

import ctypes

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
dist.barrier()
if rank == 1:
    ctypes.string_at(0)  # cause
dist.all_reduce(torch.ones(1))
