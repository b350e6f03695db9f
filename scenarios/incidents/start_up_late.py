"""One node comes late, and the patience of the others is over before it comes."""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

if os.environ["RANK"] == "2":
    time.sleep(3600)  # pulls its image, copies its data, waits for a mount

dist.init_process_group("gloo", timeout=timedelta(seconds=3))
print("all ranks have met", flush=True)
dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
