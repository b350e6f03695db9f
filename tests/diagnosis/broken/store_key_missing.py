# kind: failed
# rank: 1
# says: best checkpoint
"""A rank asks the store for a key that nobody has set, for as long as it is given."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

dist.init_process_group("gloo")
rank, store = dist.get_rank(), _get_default_store()
if rank == 0:
    store.set("last checkpoint", "17")
dist.barrier()
if rank == 1:
    store.wait(["best checkpoint"], timedelta(milliseconds=300))  # cause
dist.all_reduce(torch.ones(1))
