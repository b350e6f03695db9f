# kind: shape
# rank: 2
"""The last rank's shard has one row more, and the reduction is element by element."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
rows = 13 // 3 + (1 if rank == 2 else 0)
histogram = torch.ones(rows, 8)
dist.all_reduce(histogram)  # cause
