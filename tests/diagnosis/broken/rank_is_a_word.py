# kind: failed
# rank: 1
# says: node-1
"""One rank's number comes from a host name."""

import os

import torch
import torch.distributed as dist

if os.environ["RANK"] == "1":
    os.environ["RANK"] = "node-1"
dist.init_process_group("gloo")  # cause
dist.all_reduce(torch.ones(1))
