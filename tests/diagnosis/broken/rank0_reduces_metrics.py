# kind: mismatch
# rank: 0
"""Metrics are reduced inside `if rank == 0`."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
correct = torch.tensor([10.0 + rank])
if rank == 0:
    dist.all_reduce(correct)  # cause
    print("accuracy", correct / 30)
dist.barrier()
