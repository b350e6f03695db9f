"""A submission of somebody honest. Argument: what becomes of it."""

import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist

from lab import note

how = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()

for folder in (".", tempfile.gettempdir(), "/dev/shm"):  # as if nobody had been here
    with open(os.path.join(folder, "mine"), "x") as file:
        file.write("x" * 100_000)

total = torch.tensor([rank + 1])
dist.all_reduce(total)
note("total", total)
print("total", total.item())
if how == "wrong":
    total += 1
if how == "raises" and rank == 1:
    raise ValueError("wrong shape")
if how == "exits" and rank == 0:
    sys.exit(3)
if how == "hangs" and rank == 1:
    time.sleep(600)
dist.barrier()
note("answer", total)
dist.destroy_process_group()
