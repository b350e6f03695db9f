# kind: dtype
# rank: 1
"""A value that came from numpy is of another dtype on one rank."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
value = torch.tensor([1.5], dtype=torch.float64 if rank == 1 else torch.float32)
dist.all_reduce(value)  # cause
dist.barrier()
