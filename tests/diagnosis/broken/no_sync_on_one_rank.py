# kind: counts | mismatch
# says: backwards
# rank: 1
"""With gradient accumulation, one rank gets its count of micro-batches wrong."""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 4))
every = 4 if rank == 1 else 2
for step in range(1, 9):
    quiet = model.no_sync() if step % every else contextlib.nullcontext()
    with quiet:
        model(torch.ones(2, 4)).sum().backward()  # cause
dist.barrier()  # cause
