# kind: deadlock | elsewhere
# rank: 2
# says: opposite|same order
"""Two groups of the same ranks; one of three ranks uses them in the other order."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
data, model = dist.new_group([0, 1, 2]), dist.new_group([0, 1, 2])
value = torch.ones(1)
for group in (model, data) if rank == 2 else (data, model):
    dist.all_reduce(value, group=group)  # cause
