# kind: late | never_entered
# rank: 0
# timeout: 8s
"""Rank 0 writes a checkpoint for longer than the others' patience."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=1))
rank = dist.get_rank()
for step in range(3):
    dist.all_reduce(torch.ones(1))  # cause
    if rank == 0 and step == 1:
        time.sleep(4)  # cause
