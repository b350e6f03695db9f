# kind: groups
# rank: 2
"""A rank that is no member of a group does not call new_group for it, so the next one has another name there."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank < 2:
    pair = dist.new_group([0, 1])  # also
everybody = dist.new_group([0, 1, 2])  # cause
value = torch.ones(1)
dist.all_reduce(value, group=everybody)
