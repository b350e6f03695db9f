# kind: left_early | went_alone
# rank: 2 | nobody
"""Pairs overlap; the last rank ends a step early, when the first one is done anyway. Nobody knows which was right."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
a, c = dist.new_group([0, 1]), dist.new_group([1, 2])
t = torch.ones(2)
for step in range(3):
    if rank in (0, 1):
        dist.all_reduce(t, group=a)
    if rank == 2 and step == 2:
        break
    if rank in (1, 2):
        dist.all_reduce(t, group=c)  # cause
