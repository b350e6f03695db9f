"""A group is destroyed when it is no longer needed, and its name may come again."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
value = torch.ones(1)
for _ in range(3):
    group = dist.new_group([0, 1, 2])
    dist.all_reduce(value, group=group)
    dist.barrier()
    dist.destroy_process_group(group)
dist.all_reduce(value)
dist.destroy_process_group()
