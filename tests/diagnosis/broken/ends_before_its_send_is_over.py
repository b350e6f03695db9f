# kind: left_early
# rank: 0
"""A rank hands a tensor over without waiting, and is gone before the other one takes it."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
data = torch.ones(1 << 20)
if dist.get_rank() == 0:
    dist.isend(data, 1)  # cause
elif dist.get_rank() == 1:
    time.sleep(0.5)
    dist.recv(data, 0)
