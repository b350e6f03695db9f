# kind: root
# rank: nobody | 0 1 2
# innocent: none
"""Everybody broadcasts what it has itself, and nobody receives."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
weights = torch.full((4,), float(rank))
dist.broadcast(weights, src=rank)  # cause
dist.barrier()
