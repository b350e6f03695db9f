# kind: failed
# rank: 2
# says: code 7
"""A library ends the process where it stands."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(3):
    dist.all_reduce(torch.ones(1))  # cause
    if rank == 2 and step == 1:
        os._exit(7)  # cause
