# kind: failed
# rank: 1
# says: allocate|memory
"""One rank gets a sequence that is far too long."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
length = 1 << 44 if rank == 1 else 16
hidden = torch.zeros(length)  # cause
dist.all_reduce(hidden)
