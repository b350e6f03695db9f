# kind: failed
# rank: 1
# says: not been initialized|initiali
"""One rank logs a last figure when the group is gone already."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
loss = torch.ones(1)
dist.all_reduce(loss)
dist.barrier()
dist.destroy_process_group()
if rank == 1:
    dist.all_reduce(loss)  # cause
