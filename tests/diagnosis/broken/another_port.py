# kind: rendezvous
# rank: 1
"""One rank looks for the store at another port."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

if os.environ["RANK"] == "1":
    os.environ["MASTER_PORT"] = "29999"
dist.init_process_group("gloo", timeout=timedelta(seconds=60))  # cause
dist.all_reduce(torch.ones(1))
