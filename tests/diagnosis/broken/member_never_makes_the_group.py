# kind: groups
# rank: 2
"""Only two of three members make the group; the third takes the branch without it."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank < 2:
    everybody = dist.new_group([0, 1, 2])  # also
    dist.all_reduce(torch.ones(1), group=everybody)
dist.barrier()  # cause
