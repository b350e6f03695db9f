# kind: mismatch
# rank: 2
"""A rank that is not in the group has None for it, and None is the default group."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
pair = dist.new_group([0, 1])
group = pair if rank < 2 else None
value = torch.ones(1)
dist.all_reduce(value, group=group)  # cause
dist.barrier()
