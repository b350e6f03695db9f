# kind: failed
# rank: 0
"""There are fewer parts than ranks."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
parts = [torch.ones(2), torch.ones(2)] if rank == 0 else None
mine = torch.empty(2)
dist.scatter(mine, parts, src=0)  # cause
