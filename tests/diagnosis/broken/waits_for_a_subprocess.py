# kind: never_entered
# rank: 1
"""Rank 1 unpacks its data with a command that does not end."""

import subprocess

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 1:
    subprocess.run(["sleep", "1000"])  # cause
dist.all_reduce(torch.ones(1))
