# kind: deadlock
# rank: nobody
# nodes: 2
# never: never entered
# says: opposite|same order
"""Two groups of the same ranks, used in opposite orders."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
data = dist.new_group([0, 1])
model = dist.new_group([0, 1])
value = torch.ones(1)
if rank == 0:
    dist.all_reduce(value, group=data)  # cause
    dist.all_reduce(value, group=model)
else:
    dist.all_reduce(value, group=model)  # also
    dist.all_reduce(value, group=data)
