# kind: groups
# rank: 1
# timeout: 5s
"""One member destroys a group that the other still uses."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
pair = dist.new_group([0, 1])
if rank < 2:
    dist.all_reduce(torch.ones(1), group=pair)
if rank == 1:
    dist.destroy_process_group(pair)  # cause
elif rank == 0:
    time.sleep(0.3)
    dist.all_reduce(torch.ones(1), group=pair)
dist.barrier()
