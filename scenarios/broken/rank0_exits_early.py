"""Rank 0 thinks that it is done and leaves, with exit code 0, while the others still need it."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
tensor = torch.ones(4)

dist.all_reduce(tensor)
if rank == 0:
    print("rank 0 has saved the model")
    sys.exit(0)  # the mistake
dist.all_reduce(tensor)
