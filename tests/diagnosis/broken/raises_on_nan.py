# kind: failed
# rank: 1
# says: nan
"""One rank finds that its loss is no number."""

import math

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(3):
    loss = math.nan if rank == 1 and step == 2 else 1.0 / (step + 1)
    if math.isnan(loss):
        raise FloatingPointError(f"loss is {loss} at step {step}")  # cause
    dist.all_reduce(torch.tensor([loss]))
