# kind: failed
# rank: 1 2 | 1 | 2
# innocent: 0
"""The source of a broadcast is given as a rank of the group, where PyTorch takes it for one of the world."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
pair = dist.new_group([1, 2])
if rank > 0:
    dist.broadcast(torch.ones(4), src=0, group=pair)  # cause
dist.barrier()
