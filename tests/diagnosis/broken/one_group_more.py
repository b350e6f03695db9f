# kind: groups
# rank: 1
"""One rank makes a group of its own before the one that all make."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 1:
    own = dist.new_group([1])  # cause
everybody = dist.new_group([0, 1, 2])  # also
dist.all_reduce(torch.ones(1), group=everybody)
