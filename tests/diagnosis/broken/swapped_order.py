# kind: mismatch
# rank: 1
"""Rank 1 does two different things in the other order."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
weights, count = torch.ones(4), torch.ones(1)
if rank == 1:
    dist.broadcast(weights, src=0)  # cause
    dist.all_reduce(count)
else:
    dist.all_reduce(count)
    dist.broadcast(weights, src=0)
