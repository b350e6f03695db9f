"""Ends as it is told to, with other ranks waiting: python ending.py HOW. All ranks are ended then, and nobody waits."""

from __future__ import annotations

import os
import signal
import sys

import torch
import torch.distributed as dist

dist.init_process_group("mpi")
rank = dist.get_rank()
dist.all_reduce(torch.ones(1))
how = sys.argv[1]
if rank == 1:
    if how == "raise":
        raise ValueError("a mistake on rank 1")
    if how == "exit":
        sys.exit(3)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
if how == "leave":  # nothing is destroyed, and nobody waits
    print(f"rank {rank} is done", flush=True)
    sys.exit()
dist.all_reduce(torch.ones(10))
print(f"rank {rank} went on", flush=True)
