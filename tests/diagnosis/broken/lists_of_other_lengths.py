# kind: shape
# rank: 1
"""Rank 0 hands out three objects; one rank has made room for two."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
objects = [{"epochs": 3}, "adam", 0.1] if rank == 0 else [None] * (2 if rank == 1 else 3)
dist.broadcast_object_list(objects, src=0)  # cause
dist.all_reduce(torch.ones(1))
