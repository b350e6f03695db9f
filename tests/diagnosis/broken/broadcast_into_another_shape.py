# kind: shape
# rank: 2
"""Rank 0 sends its weights to everybody; one rank has built its layer for other classes."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
head = torch.nn.Linear(8, 12 if rank == 2 else 10)
for parameter in head.parameters():
    dist.broadcast(parameter.data, src=0)  # cause
dist.barrier()
