# kind: never_entered
# rank: 0
"""Rank 0 asks whether to go on: it opens a pipe that nobody writes to."""

import os
import tempfile

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 0:
    path = os.path.join(tempfile.mkdtemp(), "answer")
    os.mkfifo(path)
    with open(path) as answer:  # cause
        print(answer.readline())
dist.broadcast(torch.ones(1), src=0)
