"""A rank that is in no further group does not take part in making the last one."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
value = torch.ones(1)
if rank < 2:
    pair = dist.new_group([0, 1])
    dist.all_reduce(value, group=pair)
dist.barrier()
