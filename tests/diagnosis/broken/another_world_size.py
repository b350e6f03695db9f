# kind: rendezvous
# rank: 1
# says: 2 ranks
"""One node's launch script still has the number of ranks of the run before."""

import os

import torch
import torch.distributed as dist

if os.environ["RANK"] == "1":
    os.environ["WORLD_SIZE"] = "2"
dist.init_process_group("gloo")  # cause
dist.all_reduce(torch.ones(1))
