# kind: never_entered
# rank: 0 | nobody
"""Rejection sampling finds nothing to accept."""

import torch
import torch.distributed as dist


def draw(limit):
    while True:  # cause
        candidate = torch.rand(1).item()  # cause
        if candidate > limit:  # cause
            return candidate


dist.init_process_group("gloo")
rank = dist.get_rank()
sample = torch.tensor([draw(2.0 if rank == 0 else 0.1)])
dist.all_reduce(sample)
