# kind: went_alone | left_early
# rank: 2
"""The barrier is meant for two ranks; the third one calls that of everybody."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
pair = dist.new_group([0, 1])
for _ in range(3):
    dist.all_reduce(torch.ones(1))
if rank < 2:
    dist.barrier(group=pair)
else:
    dist.barrier()  # cause
