# kind: dtype
# rank: nobody | 0 | 1
# innocent: 2
"""Tokens are sent as 32-bit integers and received as 64-bit ones."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 0:
    dist.send(torch.arange(8, dtype=torch.int32), dst=1)  # cause
elif rank == 1:
    dist.recv(torch.empty(8, dtype=torch.int64), src=0)  # cause
dist.barrier()
