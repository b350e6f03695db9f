# kind: root
# rank: 2
"""The best rank broadcasts its weights, but one rank has another idea of which that is."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
best = 1 if rank == 2 else 0
weights = torch.full((4,), float(rank))
dist.broadcast(weights, src=best)  # cause
dist.barrier()
