# kind: left_early
# rank: 0
"""Rank 0 alone decides that training is done."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(6):
    loss = torch.tensor([1.0 / (step + 1)])
    dist.all_reduce(loss)  # cause
    if rank == 0 and step == 3:
        break  # cause
