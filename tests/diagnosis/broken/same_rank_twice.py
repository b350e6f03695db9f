# kind: rendezvous
# rank: nobody | 1 | 0 1
# innocent: 2
# says: rank 0
"""Two machines were given the same number by hand."""

import os

import torch
import torch.distributed as dist

number = {"0": 0, "1": 0, "2": 2}[os.environ["RANK"]]
dist.init_process_group("gloo", rank=number, world_size=3)  # cause
dist.all_reduce(torch.ones(1))
