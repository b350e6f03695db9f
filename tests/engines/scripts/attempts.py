"""Rank 1 fails in the first attempt, or in each; what the others do then is torchrun's business."""

import os
import sys
import time

import torch
import torch.distributed as dist

from lab import note

how = sys.argv[1]
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group()
rank = dist.get_rank()
print(f"attempt {attempt} of rank {rank}", flush=True)
note("attempt", attempt)
total = torch.ones(2)
dist.all_reduce(total)
if rank == 1 and (attempt == 0 or how == "always"):
    raise ValueError("not yet")
if rank == 1 and how == "hang":
    time.sleep(1000)
dist.all_reduce(total)
note("total", total.tolist())
dist.destroy_process_group()
