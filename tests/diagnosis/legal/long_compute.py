# allow: straggler
"""One rank computes longer than the others, who wait for it."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for _ in range(3):
    until = time.monotonic() + (0.4 if rank == 1 else 0.01)
    while time.monotonic() < until:
        torch.ones(64, 64) @ torch.ones(64, 64)
    dist.all_reduce(torch.ones(1))
