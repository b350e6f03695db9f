# kind: mismatch
# rank: 2
"""Rank 2 has nothing to report and leaves out the reduction of the loss."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
loss = torch.full((1,), float(rank))
if rank != 2:
    dist.all_reduce(loss)
dist.barrier()  # cause
