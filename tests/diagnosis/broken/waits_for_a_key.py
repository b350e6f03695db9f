# kind: never_entered
# rank: 1
"""A rank waits for a key of the store that nobody sets."""

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 1:
    _get_default_store().wait(["dataset is ready"])  # cause
dist.all_reduce(torch.ones(1))
