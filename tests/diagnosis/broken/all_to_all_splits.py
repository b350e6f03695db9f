# kind: splits
# rank: 1
"""One rank expects other numbers of tokens than are sent to it."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
given = torch.arange(6.0)
taken = torch.empty(9 if rank == 1 else 6)
take = [3, 3, 3] if rank == 1 else [2, 2, 2]
dist.all_to_all_single(taken, given, take, [2, 2, 2])  # cause
