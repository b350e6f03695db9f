# kind: failed
# rank: 1
# says: exhausted
"""A sanity check fails on one rank."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(4):
    loss = torch.tensor([float(step + rank)])
    dist.all_reduce(loss)
    assert rank != 1 or step < 2, "shard 1 is exhausted"  # cause
