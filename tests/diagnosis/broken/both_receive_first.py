# kind: deadlock
# rank: nobody
# innocent: 2
"""Two ranks exchange their halves, and both receive first."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
half = torch.ones(4)
if rank < 2:
    dist.recv(half, src=1 - rank)  # cause
    dist.send(half, dst=1 - rank)
dist.barrier()
