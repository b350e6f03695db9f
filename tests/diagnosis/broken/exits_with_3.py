# kind: failed
# rank: 1
# says: code 3
"""A rank ends itself with a code of its own."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(3):
    if rank == 1 and step == 2:
        sys.exit(3)  # cause
    dist.all_reduce(torch.ones(1))
