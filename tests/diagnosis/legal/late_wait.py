"""Handles are waited for long after, and in the other order."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
parts = [torch.full((8,), float(rank)) for _ in range(4)]
handles = [dist.all_reduce(part, async_op=True) for part in parts]
time.sleep(0.2 * rank)
for handle in reversed(handles):
    handle.wait()
dist.barrier()
